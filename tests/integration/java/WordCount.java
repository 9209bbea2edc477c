package programs;

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words, at least once: reads lines and writes the new count of each word. Words pass through a repartition topic;
 * counts are in a store whose changelog is a compacted topic.
 *
 * <p>Arguments: BOOTSTRAP APPLICATION INPUT OUTPUT STATE_DIR. Exits at the end of standard input. Prints changes of state
 * to standard output.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("application.id", arguments[1]);
        config.put("state.dir", arguments[4]);
        config.put("processing.guarantee", "at_least_once");
        config.put("num.stream.threads", 2);
        config.put("commit.interval.ms", 200);
        config.put("repartition.purge.interval.ms", 200);
        config.put("main.consumer.auto.offset.reset", "earliest");
        config.put("consumer.heartbeat.interval.ms", 200);
        // Streams does not leave its group when it closes: a static member returns immediately.
        config.put("group.instance.id", "counter");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((state, before) -> System.out.println("state " + state));
        streams.start();
        while (System.in.read() != -1) {
            // Wait for the end of standard input.
        }
        if (!streams.close(Duration.ofSeconds(30)))
            throw new IllegalStateException("it did not end");
    }
}
