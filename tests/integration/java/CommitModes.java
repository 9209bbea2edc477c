package programs;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a topic in three groups, with automatic, synchronous and asynchronous commits.
 *
 * <p>Arguments: BOOTSTRAP TOPIC RECORDS; RECORDS is the number of records in the topic. A line for each mode has the
 * number of committed records according to the admin client, while the member is present, and the position at which the
 * group's next member begins. {@code async} also reports whether its commits completed, and their errors.
 */
public final class CommitModes {
    private static final Duration POLL = Duration.ofMillis(100);
    private static String bootstrap;
    private static String topic;
    private static int records;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        records = Integer.parseInt(arguments[2]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            auto(admin);
            sync(admin);
            async(admin);
        }
    }

    private static void auto(Admin admin) throws Exception {
        try (KafkaConsumer<String, String> consumer = member("auto", true)) {
            readAll(consumer, () -> { });
            // The interval of auto.commit.interval.ms passes while it polls.
            while (committed(admin, "auto") < records)
                consumer.poll(POLL);
            report("auto", admin, "");
        }
        next("auto");
    }

    private static void sync(Admin admin) throws Exception {
        try (KafkaConsumer<String, String> consumer = member("sync", false)) {
            readAll(consumer, consumer::commitSync);
            report("sync", admin, "");
        }
        next("sync");
    }

    private static void async(Admin admin) throws Exception {
        AtomicInteger sent = new AtomicInteger();
        AtomicInteger answered = new AtomicInteger();
        List<Exception> failed = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = member("async", false)) {
            readAll(consumer, () -> {
                sent.incrementAndGet();
                consumer.commitAsync((Map<TopicPartition, OffsetAndMetadata> offsets, Exception error) -> {
                    answered.incrementAndGet();
                    if (error != null)
                        failed.add(error);
                });
            });
            while (answered.get() < sent.get())
                consumer.poll(POLL);
            report("async", admin, " answered " + (answered.get() == sent.get()) + " failed " + failed);
        }
        next("async");
    }

    private static KafkaConsumer<String, String> member(String mode, boolean automatic) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", topic + "-" + mode);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        config.put("enable.auto.commit", automatic);
        config.put("auto.commit.interval.ms", 200);
        config.put("auto.offset.reset", "earliest");
        config.put("max.poll.records", 20);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static void readAll(KafkaConsumer<String, String> consumer, Runnable commit) {
        for (int read = 0; read < records; ) {
            int count = consumer.poll(POLL).count();
            read += count;
            if (count > 0)
                commit.run();
        }
    }

    private static long committed(Admin admin, String mode) throws Exception {
        return admin.listConsumerGroupOffsets(topic + "-" + mode).partitionsToOffsetAndMetadata().get()
            .values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }

    private static void report(String mode, Admin admin, String more) throws Exception {
        System.out.println(mode + " committed " + committed(admin, mode) + more);
    }

    private static void next(String mode) {
        try (KafkaConsumer<String, String> consumer = member(mode, false)) {
            while (consumer.assignment().isEmpty())
                consumer.poll(POLL);
            long begins = 0;
            // All records have been read, so no poll has moved these.
            for (TopicPartition partition : consumer.assignment())
                begins += consumer.position(partition);
            System.out.println(mode + " next begins " + begins);
        }
    }
}
