import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.MiniDFSNNTopology.NNConf;
import org.apache.hadoop.hdfs.MiniDFSNNTopology.NSConf;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Runs HDFS with one data node, its name node at the port that the second argument names, its data in the first. A third
 * may be "keytab=FILE", of hdfs/localhost: it wants Kerberos then; or "pair=PORT", of a second name node. With either, a
 * client's core-site.xml is written to the folder of the data.
 *
 * Each line that it reads is a command: "safemode enter" or "leave", "namenode stop" or "start", "datanode stop" or
 * "start", "quota PATH BYTES", "folder PATH OWNER", "active N" of a pair. It prints DONE, or what has failed.
 */
public class MiniDfs {
    private static final String PRINCIPAL = "hdfs/localhost@EXAMPLE.COM";
    private static final String ADDRESS = "dfs.namenode.rpc-address.pair.";
    private static DataNodeProperties stopped;

    public static void main(String[] arguments) throws Exception {
        Path data = Path.of(arguments[0]);
        String port = arguments[1];
        String[] more = (arguments.length > 2 ? arguments[2] : "none=").split("=", 2);
        Configuration settings = new Configuration();
        settings.set("dfs.namenode.datanode.registration.ip-hostname-check", "false");
        settings.set("hadoop.security.authentication", "simple");
        Configuration clients = new Configuration(false);
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings, data.toFile()).numDataNodes(1)
                .format(!data.resolve("data").toFile().exists());
        switch (more[0]) {
            case "keytab" -> secure(settings, clients, more[1]);
            case "pair" -> builder.nnTopology(pair(clients, port, more[1]));
            default -> { }
        }
        MiniDFSCluster cluster = (more[0].equals("pair") ? builder : builder.nameNodePort(Integer.parseInt(port))).build();
        if (more[0].equals("pair")) {
            cluster.transitionToActive(0);
        }
        cluster.waitActive();
        if (clients.size() > 0) {
            try (OutputStream file = new FileOutputStream(data.resolve("core-site.xml").toFile())) {
                clients.writeXml(file);
            }
        }
        System.out.println("READY");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                execute(cluster, line.split(" "));
                System.out.println("DONE " + line);
            } catch (Exception error) {
                System.out.println("FAILED " + line + ": " + error);
            }
        }
        Thread.currentThread().join();
    }

    private static void secure(Configuration settings, Configuration clients, String keytab) {
        for (Configuration each : new Configuration[] {settings, clients}) {
            each.set("hadoop.security.authentication", "kerberos");
            each.set("hadoop.rpc.protection", "privacy");
            each.set("dfs.data.transfer.protection", "privacy");
            each.set("dfs.namenode.kerberos.principal", PRINCIPAL);
        }
        settings.set("hadoop.security.authorization", "true");
        settings.set("dfs.block.access.token.enable", "true");
        settings.set("dfs.datanode.kerberos.principal", PRINCIPAL);
        settings.set("dfs.namenode.keytab.file", keytab);
        settings.set("dfs.datanode.keytab.file", keytab);
        settings.set("ignore.secure.ports.for.testing", "true");
        UserGroupInformation.setConfiguration(settings);
    }

    private static MiniDFSNNTopology pair(Configuration clients, String first, String second) {
        clients.set("dfs.nameservices", "pair");
        clients.set("dfs.ha.namenodes.pair", "first,second");
        clients.set(ADDRESS + "first", "127.0.0.1:" + first);
        clients.set(ADDRESS + "second", "127.0.0.1:" + second);
        clients.set("dfs.client.failover.proxy.provider.pair",
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider");
        return new MiniDFSNNTopology().addNameservice(new NSConf("pair")
                .addNN(new NNConf("first").setIpcPort(Integer.parseInt(first)))
                .addNN(new NNConf("second").setIpcPort(Integer.parseInt(second))));
    }

    private static void execute(MiniDFSCluster cluster, String[] words) throws Exception {
        switch (words.length == 2 && !words[0].equals("active") ? words[0] + " " + words[1] : words[0]) {
            case "safemode enter" -> cluster.getNameNodeRpc().setSafeMode(SafeModeAction.SAFEMODE_ENTER, false);
            case "safemode leave" -> cluster.getNameNodeRpc().setSafeMode(SafeModeAction.SAFEMODE_LEAVE, false);
            case "namenode stop" -> cluster.shutdownNameNode(0);
            case "namenode start" -> cluster.restartNameNode(0, true);
            case "datanode stop" -> stopped = cluster.stopDataNode(0);
            case "datanode start" -> {
                cluster.restartDataNode(stopped, true);
                cluster.waitActive();
            }
            case "quota" -> cluster.getNameNodeRpc().setQuota(
                    words[1], HdfsConstants.QUOTA_DONT_SET, Long.parseLong(words[2]), null);
            case "folder" -> {
                cluster.getNameNodeRpc().mkdirs(words[1], new FsPermission((short) 0755), true);
                cluster.getNameNodeRpc().setOwner(words[1], words[2], null);
            }
            case "active" -> {
                int next = Integer.parseInt(words[1]);
                if (cluster.getNameNode(1 - next) != null && cluster.getNameNode(1 - next).isActiveState()) {
                    cluster.transitionToStandby(1 - next);
                }
                cluster.transitionToActive(next);
            }
            default -> throw new IllegalArgumentException("no such command");
        }
    }
}
