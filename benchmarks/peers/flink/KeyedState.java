import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Workload "read-modify-write": a rolling sum per key of 100 bytes in value state, on RocksDB, one output per input. */
public class KeyedState {
  public static void main(String[] args) throws Exception {
    Map<String, String> arg = new HashMap<>();
    for (String a : args) arg.put(a.split("=", 2)[0], a.split("=", 2)[1]);
    long rows = Long.parseLong(arg.getOrDefault("rows", "20000000"));
    long keys = Long.parseLong(arg.getOrDefault("keys", "10000000"));
    int parallelism = Integer.parseInt(arg.getOrDefault("parallelism", "2"));
    Configuration conf = new Configuration();
    conf.setString("pipeline.object-reuse", "true");
    conf.setString("state.backend.type", "rocksdb");
    conf.setString("taskmanager.memory.managed.size", 256 * parallelism + "mb"); // 256 MB per slot, as in ours
    for (String key : arg.keySet()) if (key.contains(".")) conf.setString(key, arg.get(key));
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
    DataGeneratorSource<Tuple2<String, Long>> source =
        new DataGeneratorSource<>(new Generate(keys), rows, TypeInformation.of(new TypeHint<Tuple2<String, Long>>() {}));
    env.fromSource(source, WatermarkStrategy.noWatermarks(), "source").keyBy(new Key()).process(new Total()).sinkTo(new DiscardingSink<>());
    long start = System.nanoTime();
    env.execute("keyed state");
    double seconds = (System.nanoTime() - start) / 1e9;
    System.out.printf("{\"peer\": \"flink\", \"workload\": \"read-modify-write\", \"rows\": %d, \"keys\": %d, \"parallelism\": %d, \"seconds\": %.3f, \"rows_per_s\": %.0f}%n",
        rows, keys, parallelism, seconds, rows / seconds);
  }

  /** (index * 2654435761 mod keys, times a constant, as 16 hex digits, repeated to 100; 1) */
  public static class Generate implements GeneratorFunction<Long, Tuple2<String, Long>> {
    private static final byte[] DIGITS = "0123456789abcdef".getBytes(java.nio.charset.StandardCharsets.ISO_8859_1);
    private final long keys;
    Generate(long keys) { this.keys = keys; }
    @Override public Tuple2<String, Long> map(Long i) {
      long word = Math.floorMod(i * 2654435761L, keys) * 0x9E3779B97F4A7C15L;
      byte[] text = new byte[100];
      for (int at = 0; at < 100; at++) text[at] = DIGITS[(int) (word >>> (60 - 4 * (at & 15))) & 15];
      return Tuple2.of(new String(text, java.nio.charset.StandardCharsets.ISO_8859_1), 1L);
    }
  }

  public static class Key implements KeySelector<Tuple2<String, Long>, String> {
    @Override public String getKey(Tuple2<String, Long> row) { return row.f0; }
  }

  public static class Total extends KeyedProcessFunction<String, Tuple2<String, Long>, Tuple2<String, Long>> {
    private transient ValueState<Long> total;
    @Override public void open(OpenContext context) { total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Long.class)); }
    @Override public void processElement(Tuple2<String, Long> row, Context context, Collector<Tuple2<String, Long>> out) throws Exception {
      Long before = total.value();
      long now = (before == null ? 0 : before) + row.f1;
      total.update(now);
      out.collect(Tuple2.of(row.f0, now));
    }
  }
}
