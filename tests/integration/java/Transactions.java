package programs;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers, and a consumer as the reference for others; all use partition 0.
 *
 * <p>Argument: BOOTSTRAP. Each line of standard input produces one line of output, {@code ok RESULT} or
 * {@code failed ERROR}: {@code open ID TIMEOUT_MS} (an earlier producer with the ID is fenced and renamed to
 * {@code old-ID}), {@code begin ID}, {@code send ID TOPIC VALUE} (result: its offset), {@code offsets ID GROUP TOPIC OFFSET},
 * {@code commit ID}, {@code abort ID}, {@code look ISOLATION TOPIC TIMESTAMP} (result: end offset, position and lag there,
 * offset of the timestamp, OFFSET=VALUE for each record). At the end of the input, it exits and leaves transactions open.
 */
public final class Transactions {
    private static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            try {
                System.out.println("ok " + answer(line.split(" ")));
            } catch (Exception error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println("failed " + cause.getClass().getSimpleName());
            }
        }
        System.exit(0); // Closing a producer would abort its transaction.
    }

    private static String answer(String[] words) throws Exception {
        KafkaProducer<String, String> producer = producers.get(words[1]);
        switch (words[0]) {
            case "open":
                if (producer != null)
                    producers.put("old-" + words[1], producer);
                open(words[1], words[2]);
                return "";
            case "begin":
                producer.beginTransaction();
                return "";
            case "send":
                return "" + producer.send(new ProducerRecord<>(words[2], 0, null, words[3])).get().offset();
            case "offsets":
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[3], 0), new OffsetAndMetadata(Long.parseLong(words[4]))),
                    new ConsumerGroupMetadata(words[2]));
                return "";
            case "commit":
                producer.commitTransaction();
                return "";
            case "abort":
                producer.abortTransaction();
                return "";
            case "look":
                return look(words[1], new TopicPartition(words[2], 0), Long.parseLong(words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static void open(String id, String timeout) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        config.put("transactional.id", id);
        config.put("transaction.timeout.ms", timeout);
        config.put("linger.ms", 0);
        producers.put(id, new KafkaProducer<>(config));
        producers.get(id).initTransactions();
    }

    private static String look(String isolation, TopicPartition partition, long timestamp) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        config.put("isolation.level", isolation);
        config.put("fetch.max.wait.ms", 50);
        List<String> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100)))
                    records.add(record.offset() + "=" + record.value());
            // Before offsetsForTimes, which would record the offset that it finds as the end.
            long lag = consumer.currentLag(partition).orElse(-1);
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
            return String.format(
                Locale.ROOT,
                "%d %d %d %d %s",
                end,
                consumer.position(partition),
                lag,
                found == null ? -1 : found.offset(),
                String.join(" ", records));
        }
    }
}
