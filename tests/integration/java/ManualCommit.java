package programs;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of a group with the cooperative assignor that commit manually, with metadata.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP. Lines of standard input: {@code join NAME}, {@code leave NAME},
 * {@code seek NAME PARTITION OFFSET}; at its end, all members leave. Each step prints a line to standard output.
 */
public final class ManualCommit {
    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "join":
                    Member member = new Member(words[1], arguments[0], arguments[1], arguments[2]);
                    members.put(words[1], member);
                    member.start();
                    break;
                case "leave":
                    members.remove(words[1]).leave();
                    break;
                case "seek":
                    members.get(words[1]).seek(Integer.parseInt(words[2]), Long.parseLong(words[3]));
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        for (Member member : members.values())
            member.leave();
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String topic;
        private final KafkaConsumer<String, String> consumer;
        private final ConcurrentLinkedQueue<Runnable> asked = new ConcurrentLinkedQueue<>();
        private volatile boolean leaving = false;

        Member(String name, String bootstrap, String topic, String group) {
            super(name);
            this.topic = topic;
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("group.id", group);
            config.put("client.id", name);
            config.put("key.deserializer", StringDeserializer.class);
            config.put("value.deserializer", StringDeserializer.class);
            config.put("enable.auto.commit", false);
            config.put("auto.offset.reset", "earliest");
            config.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            config.put("heartbeat.interval.ms", 100);
            config.put("max.poll.records", 7);
            consumer = new KafkaConsumer<>(config);
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            while (!leaving) {
                for (Runnable step; (step = asked.poll()) != null; )
                    step.run();
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty())
                    commit(records);
            }
            consumer.close();
            say("left");
        }

        private void commit(ConsumerRecords<String, String> records) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                say("read " + record.partition() + " " + record.offset() + " " + record.value());
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), "by " + getName()));
            }
            consumer.commitSync(offsets);
            offsets.forEach((partition, offset) ->
                say("committed " + partition.partition() + " " + offset.offset()));
        }

        void seek(int partition, long offset) {
            asked.add(() -> consumer.seek(new TopicPartition(topic, partition), offset));
        }

        void leave() throws InterruptedException {
            leaving = true;
            join();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            say("assigned " + numbers(partitions) + " owns " + numbers(consumer.assignment()));
            consumer.committed(Set.copyOf(partitions)).forEach((partition, offset) -> {
                if (offset != null)
                    say("resumes " + partition.partition() + " " + offset.offset() + " " + offset.metadata());
            });
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            say("revoked " + numbers(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            say("lost " + numbers(partitions));
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            TreeSet<Integer> numbers = new TreeSet<>();
            partitions.forEach(partition -> numbers.add(partition.partition()));
            return numbers.toString().replace(" ", "");
        }

        private void say(String text) {
            System.out.println(getName() + " " + text);
        }
    }
}
