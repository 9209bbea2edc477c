package programs;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Assigns partitions with Kafka's own assignors, and decodes and encodes the data that members exchange.
 *
 * <p>Each input line is a case: ASSIGNOR TOPIC=COUNT,... and for each member ID/INSTANCE/SUBSCRIPTION; the subscription is
 * the bytes of its JoinGroup in hex, and the instance is "-" for dynamic members. Each output line has for each member
 * ID/ASSIGNMENT/SUBSCRIPTION: the bytes of its SyncGroup, and its subscription as Java encodes it; or "failed" and the
 * error.
 */
public final class Assignments {
    private static final HexFormat HEX = HexFormat.of();
    private static final Node NODE = new Node(1, "localhost", 9092);

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                System.out.println(answer(line.split(" ")));
            } catch (RuntimeException error) {
                System.out.println("failed " + error);
            }
        }
    }

    private static String answer(String[] words) {
        // A HashMap, filled in the order of the members, as in Kafka's consumer.
        Map<String, Subscription> subscriptions = new HashMap<>();
        Map<String, String> again = new TreeMap<>();
        for (int i = 2; i < words.length; i++) {
            String[] member = words[i].split("/");
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HEX.parseHex(member[2])));
            subscription.setGroupInstanceId(member[1].equals("-") ? Optional.empty() : Optional.of(member[1]));
            subscriptions.put(member[0], subscription);
            again.put(member[0], hex(ConsumerProtocol.serializeSubscription(subscription)));
        }
        Map<String, Assignment> shares =
            assignor(words[0]).assign(cluster(words[1]), new GroupSubscription(subscriptions)).groupAssignment();
        List<String> answers = new ArrayList<>();
        for (String member : again.keySet())
            answers.add(member + "/" + hex(ConsumerProtocol.serializeAssignment(shares.get(member)))
                + "/" + again.get(member));
        return String.join(" ", answers);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range":
                return new RangeAssignor();
            case "roundrobin":
                return new RoundRobinAssignor();
            case "sticky":
                return new StickyAssignor();
            case "cooperative-sticky":
                return new CooperativeStickyAssignor();
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private static Cluster cluster(String topics) {
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topics.split(",")) {
            String[] parts = topic.split("=");
            for (int i = 0; i < Integer.parseInt(parts[1]); i++)
                partitions.add(new PartitionInfo(parts[0], i, NODE, new Node[] {NODE}, new Node[] {NODE}));
        }
        return new Cluster("cluster", List.of(NODE), partitions, Set.of(), Set.of());
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
