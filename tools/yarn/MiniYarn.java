import java.io.FileOutputStream;
import java.nio.file.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** Runs a YARN cluster of two node managers, and writes its yarn-site.xml to the directory that the argument names. */
public class MiniYarn {
    public static void main(String[] arguments) throws Exception {
        Path conf = Path.of(arguments[0]);
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("yarn.resourcemanager.scheduler.class",
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler");
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.9");
        settings.set("yarn.scheduler.minimum-allocation-mb", "256");
        settings.set("yarn.nodemanager.resource.memory-mb", "6144");
        settings.set("yarn.nodemanager.resource.cpu-vcores", "8");
        settings.set("yarn.nodemanager.pmem-check-enabled", "false");
        settings.set("yarn.nodemanager.vmem-check-enabled", "false");
        settings.set("yarn.nodemanager.disk-health-checker.enable", "false");
        settings.set("yarn.nodemanager.delete.debug-delay-sec", "600");
        settings.set("yarn.resourcemanager.am.max-attempts", "20");
        settings.set("yarn.minicluster.fixed.ports", "false");
        settings.set("fs.defaultFS", "file:///");
        MiniYARNCluster cluster = new MiniYARNCluster("mini", 2, 1, 1);
        cluster.init(settings);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the node managers have not connected");
        }
        try (FileOutputStream site = new FileOutputStream(conf.resolve("yarn-site.xml").toFile())) {
            cluster.getConfig().writeXml(site);
        }
        try (FileOutputStream site = new FileOutputStream(conf.resolve("core-site.xml").toFile())) {
            new org.apache.hadoop.conf.Configuration(cluster.getConfig()).writeXml(site);
        }
        System.out.println("READY");
        Thread.currentThread().join();
    }
}
