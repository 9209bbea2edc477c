import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/** Reads lines "NAME VERSION HEX", and prints each with the bytes and the JSON of Kafka's classes. */
public class ControlRequests {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            String name = "org.apache.kafka.common.message." + words[0] + "Data";
            Class<?> type = Class.forName(name);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Message message = (Message) type.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                throw new IllegalStateException(line + ": " + bytes.remaining() + " bytes remain");
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            Object json = Class.forName(name + "JsonConverter")
                .getMethod("write", type, short.class)
                .invoke(null, message, version);
            String hex = HexFormat.of().formatHex(written.array());
            System.out.println(words[0] + " " + version + " " + hex + " " + json);
        }
    }
}
