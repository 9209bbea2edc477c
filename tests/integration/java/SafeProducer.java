package programs;

import java.io.IOException;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends the numbers from 0 idempotently until it reads a line from standard input; then flushes and prints the result.
 *
 * <p>Arguments: BOOTSTRAP TOPIC. Each callback prints {@code acked VALUE PARTITION OFFSET} or
 * {@code failed VALUE ERROR}; the last line is {@code sent N acked N failed N}.
 */
public final class SafeProducer {
    private static final long PAUSE_NS = 500_000;

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        config.put("enable.idempotence", true);
        config.put("acks", "all");
        config.put("max.in.flight.requests.per.connection", 5);
        config.put("linger.ms", 5);
        config.put("reconnect.backoff.ms", 10);
        config.put("reconnect.backoff.max.ms", 100);
        AtomicLong acked = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long sent = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (; !toldToStop(); sent++) {
                String value = Long.toString(sent);
                producer.send(new ProducerRecord<>(arguments[1], "key" + sent % 10, value), (metadata, error) -> {
                    if (error == null) {
                        acked.incrementAndGet();
                        System.out.println("acked " + value + " " + metadata.partition() + " " + metadata.offset());
                    } else {
                        failed.incrementAndGet();
                        System.out.println("failed " + value + " " + error);
                    }
                });
                LockSupport.parkNanos(PAUSE_NS);
            }
            producer.flush();
            System.out.println("sent " + sent + " acked " + acked + " failed " + failed);
        }
    }

    private static boolean toldToStop() throws IOException {
        return System.in.available() > 0;
    }
}
