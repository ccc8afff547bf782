import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the properties of Java's consumer and producer: client, name and default, with tabs between them. */
public class ClientProperties {
    public static void main(String[] arguments) {
        print("consumer", ConsumerConfig.configDef());
        print("producer", ProducerConfig.configDef());
    }

    private static void print(String client, ConfigDef properties) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : properties.configKeys().entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            Object value = key.hasDefault() ? key.defaultValue : null;
            System.out.println(client + "\t" + entry.getKey() + "\t" + (value == null ? "" : ConfigDef.convertToString(value, key.type)));
        }
    }
}
