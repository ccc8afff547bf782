import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Runs HDFS with one data node, its name node at the port that the second argument names, its data in the first. */
public class MiniDfs {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.set("dfs.namenode.datanode.registration.ip-hostname-check", "false");
        settings.set("dfs.permissions.enabled", "false");
        settings.set("hadoop.security.authentication", "simple");
        Path data = Path.of(arguments[0]);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, data.toFile())
                .nameNodePort(Integer.parseInt(arguments[1])).numDataNodes(1).format(!data.resolve("data").toFile().exists())
                .build();
        cluster.waitActive();
        System.out.println("READY");
        Thread.currentThread().join();
    }
}
