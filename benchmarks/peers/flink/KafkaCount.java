import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.SerializableTimestampAssigner;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** Workload "kafka": count per key and second of event time, from a topic of "key,time in ms,padding" to a topic. */
public class KafkaCount {
  public static void main(String[] args) throws Exception {
    Map<String, String> arg = new HashMap<>();
    for (String a : args) arg.put(a.split("=", 2)[0], a.split("=", 2)[1]);
    long rows = Long.parseLong(arg.get("rows"));
    Configuration conf = new Configuration();
    conf.setString("pipeline.object-reuse", "true");
    for (String key : arg.keySet()) if (key.contains(".")) conf.setString(key, arg.get(key));
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arg.get("parallelism")), conf);
    KafkaSource<String> source = KafkaSource.<String>builder()
        .setBootstrapServers(arg.get("servers")).setTopics(arg.get("in")).setGroupId("flink")
        .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest())
        .setValueOnlyDeserializer(new SimpleStringSchema()).build();
    KafkaSink<String> sink = KafkaSink.<String>builder()
        .setBootstrapServers(arg.get("servers")).setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix("flink-" + arg.get("out")).setProperty("transaction.timeout.ms", "600000")
        .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder().setTopic(arg.get("out"))
            .setValueSerializationSchema(new SimpleStringSchema()).build()).build();
    env.fromSource(source, WatermarkStrategy.<String>forMonotonousTimestamps().withTimestampAssigner(new Timestamp()), "in")
        .map(new Parse()).keyBy(new Key()).window(TumblingEventTimeWindows.of(Duration.ofSeconds(1))).reduce(new Sum())
        .map(new Text()).sinkTo(sink);
    long start = System.nanoTime();
    env.execute("kafka");
    double seconds = (System.nanoTime() - start) / 1e9;
    System.out.printf("{\"peer\": \"flink\", \"workload\": \"kafka\", \"rows\": %d, \"seconds\": %.3f, \"rows_per_s\": %.0f}%n", rows, seconds, rows / seconds);
  }

  public static class Timestamp implements SerializableTimestampAssigner<String> {
    @Override public long extractTimestamp(String row, long previous) {
      int from = row.indexOf(',') + 1;
      return Long.parseLong(row, from, row.indexOf(',', from), 10);
    }
  }

  public static class Parse implements MapFunction<String, Tuple3<Long, Long, Long>> {
    @Override public Tuple3<Long, Long, Long> map(String row) {
      int comma = row.indexOf(',');
      return Tuple3.of(Long.parseLong(row, 0, comma, 10), 1L, Long.parseLong(row, comma + 1, row.indexOf(',', comma + 1), 10) / 1000);
    }
  }

  public static class Sum implements ReduceFunction<Tuple3<Long, Long, Long>> {
    @Override public Tuple3<Long, Long, Long> reduce(Tuple3<Long, Long, Long> a, Tuple3<Long, Long, Long> b) { return Tuple3.of(a.f0, a.f1 + b.f1, a.f2); }
  }

  public static class Key implements KeySelector<Tuple3<Long, Long, Long>, Long> {
    @Override public Long getKey(Tuple3<Long, Long, Long> row) { return row.f0; }
  }

  public static class Text implements MapFunction<Tuple3<Long, Long, Long>, String> {
    @Override public String map(Tuple3<Long, Long, Long> row) { return row.f0 + "," + row.f2 + "," + row.f1; }
  }
}
