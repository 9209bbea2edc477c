import java.io.File;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;
import org.apache.activemq.store.kahadb.disk.journal.Journal.JournalDiskSyncStrategy;

/** ActiveMQ on a loopback port with KahaDB in a directory, syncing never or always: PORT DIRECTORY STRATEGY. */
public class ActiveMq {
    public static void main(String[] arguments) throws Exception {
        KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
        store.setDirectory(new File(arguments[1], "kahadb"));
        store.setJournalDiskSyncStrategy(JournalDiskSyncStrategy.valueOf(arguments[2]).name());
        BrokerService broker = new BrokerService();
        broker.setDataDirectory(arguments[1]);
        broker.setPersistenceAdapter(store);
        broker.setUseJmx(false);
        broker.addConnector("stomp+nio://127.0.0.1:" + arguments[0]);
        broker.start();
        broker.waitUntilStopped();
    }
}
