package programs;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools sequentially in one warm JVM: a call takes a fifth of the time of a start.
 *
 * <p>A request on standard input is the number of words, each word, and the tool's standard input; every text is its
 * length (int) and its UTF-8 bytes. The first word names the tool's class, with or without its package. The response is
 * the exit code (int), the tool's standard output and its standard error.
 *
 * <p>Each call loads the tool's own classes again, so that no static state survives it; Kafka's client
 * library stays loaded. A tool that calls Exit ends with that code, and its shutdown hooks run then.
 */
public final class ToolServer {
    private static final List<String> PACKAGES = List.of(
        "", "org.apache.kafka.tools.", "org.apache.kafka.tools.consumer.", "org.apache.kafka.tools.consumer.group.",
        "org.apache.kafka.tools.reassign.", "org.apache.kafka.tools.streams.", "kafka.admin.", "kafka.tools.");

    private static final Redirected OUT = new Redirected();
    private static final Redirected ERR = new Redirected();

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(new FileInputStream(FileDescriptor.in));
        DataOutputStream answers = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        // Set once: loggers and Scala's println keep the first stream that they use.
        System.setOut(new PrintStream(OUT, true, "UTF-8"));
        System.setErr(new PrintStream(ERR, true, "UTF-8"));
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException e) {
                System.exit(0);
                return;
            }
            String[] words = new String[count];
            for (int i = 0; i < count; i++)
                words[i] = new String(readBytes(requests), "UTF-8");
            System.setIn(new ByteArrayInputStream(readBytes(requests)));
            ByteArrayOutputStream out = OUT.begin();
            ByteArrayOutputStream err = ERR.begin();
            int code = new Call().run(words[0], Arrays.copyOfRange(words, 1, count));
            answers.writeInt(code);
            writeBytes(answers, out);
            writeBytes(answers, err);
        }
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static void writeBytes(DataOutputStream out, ByteArrayOutputStream bytes) throws IOException {
        out.writeInt(bytes.size());
        bytes.writeTo(out);
    }

    /** One run of one tool. */
    private static final class Call {
        private final List<Runnable> hooks = new ArrayList<>();
        private Integer exitCode;

        int run(String tool, String[] arguments) throws IOException {
            Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
            Exit.setExitProcedure((code, message) -> exit(code));
            Exit.setHaltProcedure((code, message) -> exit(code));
            Thread.currentThread().setContextClassLoader(new FreshTools());
            int code = 0;
            try {
                mainClass(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException e) {
                if (exitCode == null) {
                    e.getCause().printStackTrace();
                    code = 1;
                }
            } catch (ReflectiveOperationException e) {
                System.err.println(e);
                code = 1;
            }
            // Hooks wait for threads of the tool: only its main thread could be stopped by Ended.
            for (Runnable hook : hooks)
                hook.run();
            System.out.flush();
            System.err.flush();
            return exitCode == null ? code : exitCode;
        }

        private synchronized void exit(int code) {
            // A tool that catches Throwable may exit again: the first exit code counts.
            if (exitCode == null)
                exitCode = code;
            throw new Ended();
        }

        private Class<?> mainClass(String tool) throws ClassNotFoundException {
            for (String prefix : PACKAGES) {
                try {
                    return Thread.currentThread().getContextClassLoader().loadClass(prefix + tool);
                } catch (ClassNotFoundException e) {
                    // The next package.
                }
            }
            throw new ClassNotFoundException("no tool is called " + tool);
        }
    }

    private static final class Ended extends Error {
        Ended() {
            super("the tool has called Exit", null, false, false);
        }
    }

    /** Loads tools from its own jars, all other classes from the JVM's class path. */
    private static final class FreshTools extends URLClassLoader {
        FreshTools() throws IOException {
            super(toolJars(), ToolServer.class.getClassLoader());
        }

        private static URL[] toolJars() throws IOException {
            List<URL> jars = new ArrayList<>();
            for (String path : System.getProperty("java.class.path").split(java.io.File.pathSeparator))
                if (path.contains("/kafka-tools-") || path.contains("/kafka_"))
                    jars.add(new java.io.File(path).toURI().toURL());
            return jars.toArray(new URL[0]);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (name.startsWith("org.apache.kafka.tools.") || name.startsWith("kafka."))
                synchronized (getClassLoadingLock(name)) {
                    try {
                        Class<?> loaded = findLoadedClass(name);
                        return loaded != null ? loaded : findClass(name);
                    } catch (ClassNotFoundException e) {
                        // In another jar of the class path.
                    }
                }
            return super.loadClass(name, resolve);
        }
    }

    /** A stream that writes to the buffer of the current call. */
    private static final class Redirected extends OutputStream {
        private ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        synchronized ByteArrayOutputStream begin() {
            buffer = new ByteArrayOutputStream();
            return buffer;
        }

        @Override
        public synchronized void write(int b) {
            buffer.write(b);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            buffer.write(bytes, offset, length);
        }
    }
}
