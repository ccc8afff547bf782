"""Lists keys of Flink that have no effect here.

They are accepted, and listed in one warning, so that files of Flink can be used as they are. Prefixes are listed only
where Penstock has no keys of its own, so that a typing error in one of those is still found.
"""

from __future__ import annotations

from penstock.common.options.stores import AZURE_KEY_PREFIX

FOREIGN_PREFIXES = (
    "akka.", "pekko.", "blob.", "classloader.", "client.", "cluster.", "containerized.", "daemon.", "env.",
    "external-resource.", "external-resources", "fs.", "high-availability.kubernetes.", "high-availability.zookeeper.",
    "historyserver.", "io.manager.", "jmx.",
    "jobstore.", "kubernetes.", "library-cache-manager.", "metrics.", "minicluster.", "mesos.", "oss.", "plugin.",
    "process.", "queryable-state.", "s3.assume.", "s3.async.", "s3.aws.", "s3.bulk-copy.", "s3.bulk.", "s3.chunked-",
    "s3.checksum-", "s3.connection.", "s3.entropy.", "s3.read.", "s3.retry.", "s3.s5cmd.", "s3.server-side-", "s3.sse.",
    "s3.upload.max.", "s3.upload.use.", "gs.", "scheduler-mode", "security.context.", "security.delegation.",
    "security.kerberos.access.", "security.kerberos.fetch.", "security.kerberos.krb5-conf.",
    "security.kerberos.relogin.", "security.kerberos.token.", "security.module.", "security.ssl.", "sql-client.",
    "slotmanager.number-of-slots.", "slotmanager.min-total-resource.", "slotmanager.max-total-resource.",
    "sql-gateway.", "sql.", "state.backend.changelog.", "state.backend.forst.", "state.backend.latency-track.",
    "state.backend.rocksdb.log.",
    "state.changelog.", "state.latency-track.", "state.size-track.", "state.ttl.",
    "table.", "taskmanager.memory.", "jobmanager.memory.", "jobmanager.adaptive-batch-", "jobmanager.archive.",
    "traces.", "events.", "yarn.", "zookeeper.", "python.fn-execution.", "execution.batch.",
    "execution.batch-shuffle-mode", "execution.sorted-inputs.", "execution.checkpointing.file-merging.",
    "taskmanager.network.hybrid-shuffle.",
    "taskmanager.network.sort-shuffle.", "taskmanager.network.netty.",
    "taskmanager.network.adaptive-partitioner.", "taskmanager.debug.", "taskmanager.load-balance", "web.log.",
    "web.timeout", "web.tmpdir", "web.upload.", "web.submit.", "web.cancel.", "web.rescale.",
    "web.access-control-allow-origin", "heartbeat.rpc-", "rest.async.", "rest.await-", "rest.cache.", "rest.client.",
    "rest.connection-", "rest.flamegraph.", "rest.idleness-", "rest.profiling.", "rest.retry.", "rest.server.",
    "rest.url-prefix", "rest.uri-",
)  # fmt: skip

_KEYS = """
deployment.target execution.allow-client-job-configurations execution.attached
execution.checkpointing.cleaner.parallel-mode execution.checkpointing.create-subdir
execution.checkpointing.data-inline-threshold execution.checkpointing.during-recovery.enabled
execution.checkpointing.unaligned.interruptible-timers.emit-intermediate-watermarks
execution.checkpointing.unaligned.interruptible-timers.enabled
execution.checkpointing.unaligned.max-subtasks-per-channel-state-file
execution.checkpointing.unaligned.recover-output-on-downstream.enabled execution.checkpointing.write-buffer-size
execution.job-listeners execution.program-config.enabled execution.program-config.wildcards
execution.shutdown-on-attached-exit execution.state-recovery.approximate-local-recovery
execution.submit-failed-job-on-application-error high-availability.cluster-id
high-availability.jobmanager.port high-availability.storageDir high-availability.use-old-ha-services
job.autoscaler.enabled jobmanager.adaptive-scheduler.max-delay-for-scale-trigger
jobmanager.adaptive-scheduler.min-parallelism-increase jobmanager.adaptive-scheduler.prefer-minimal-taskmanagers
jobmanager.adaptive-scheduler.rescale-trigger.active-checkpoint.enabled
jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures
jobmanager.adaptive-scheduler.rescale-trigger.max-delay
jobmanager.adaptive-scheduler.scale-on-failed-checkpoints-count jobmanager.bind-policy
jobmanager.execution.attempts-history-size jobmanager.execution.failover-strategy jobmanager.failure-enrichers
jobmanager.future-pool.size jobmanager.heap.mb jobmanager.heap.size jobmanager.io-pool.size
jobmanager.partition.hybrid.partition-data-consume-constraint jobmanager.partition.release-during-job-execution
jobmanager.resource-id jobmanager.retrieve-taskmanager-hostname jobmanager.web.checkpoints.history parallelism.max
pipeline.auto-type-registration pipeline.classpaths
pipeline.closure-cleaner-level pipeline.default-kryo-serializers pipeline.force-avro pipeline.force-kryo
pipeline.force-kryo-avro pipeline.generic-types pipeline.jars pipeline.jobvertex-parallelism-overrides
pipeline.operator-chaining.chain-operators-with-different-max-parallelism pipeline.registered-kryo-types
pipeline.registered-pojo-types pipeline.serialization-config pipeline.sources.pause-until-first-checkpoint
pipeline.vertex-description-include-index-prefix pipeline.vertex-description-mode
pipeline.vertex-name-include-index-prefix pipeline.watermark-alignment.allow-unaligned-source-splits
pipeline.watermark-alignment.buffer-size python.client.executable
python.execution-mode python.map-state.iterate-response-batch-size python.map-state.read-cache-size
python.map-state.write-cache-size python.metric.enabled python.operator-chaining.enabled python.profile.enabled
python.pythonpath python.state.cache-size python.systemenv.enabled security.kerberos.login.contexts
security.kerberos.login.use-ticket-cache slot.idle.timeout
state.backend.async state.backend.fs.memory-threshold state.backend.fs.write-buffer-size
state.backend.rocksdb.block.cache-size state.backend.rocksdb.block.metadata-blocksize
state.backend.rocksdb.bloom-filter.block-based-mode state.backend.rocksdb.checkpoint.transfer.thread.num
state.backend.rocksdb.compaction.filter.periodic-compaction-time
state.backend.rocksdb.compaction.filter.query-time-after-num-entries
state.backend.rocksdb.compaction.level.use-dynamic-size state.backend.rocksdb.compaction.style
state.backend.rocksdb.incremental-restore-async-compact-after-rescale
state.backend.rocksdb.manual-compaction.min-interval state.backend.rocksdb.memory.fixed-per-tm
state.backend.rocksdb.memory.high-prio-pool-ratio state.backend.rocksdb.memory.managed
state.backend.rocksdb.memory.partitioned-index-filters
state.backend.rocksdb.metrics.column-family-as-variable state.backend.rocksdb.options-factory
state.backend.rocksdb.predefined-options state.backend.rocksdb.rescaling.use-delete-files-in-range
state.backend.rocksdb.restore-overlap-fraction-threshold state.backend.rocksdb.timer-service.cache-size
state.backend.rocksdb.timer-service.factory state.backend.rocksdb.use-ingest-db-restore-mode
state.checkpoint.cleaner.parallel-mode
state.checkpoints.create-subdir state.schema-evolution.enabled state.storage.fs.memory-threshold
state.storage.fs.write-buffer-size task.cancellation.interval task.cancellation.timers.timeout
task.checkpoint.alignment.max-size taskmanager.cpu.cores taskmanager.data.ssl.enabled
taskmanager.exit-on-fatal-akka-error taskmanager.heap.mb taskmanager.heap.size taskmanager.host.bind-policy
taskmanager.jvm-exit-on-oom taskmanager.network.batch-shuffle.compression.enabled taskmanager.network.bind-policy
taskmanager.network.blocking-shuffle.compression.enabled taskmanager.network.blocking-shuffle.type
taskmanager.network.compression.codec taskmanager.network.detailed-metrics taskmanager.network.max-num-tcp-connections
taskmanager.network.memory.buffers-per-channel taskmanager.network.memory.buffers-request-timeout
taskmanager.network.memory.exclusive-buffers-request-timeout-ms taskmanager.network.memory.floating-buffers-per-gate
taskmanager.network.memory.fraction taskmanager.network.memory.max taskmanager.network.memory.max-buffers-per-channel
taskmanager.network.memory.max-overdraft-buffers-per-gate taskmanager.network.memory.min
taskmanager.network.memory.read-buffer.required-per-gate.max taskmanager.network.numberOfBuffers
taskmanager.network.partition-request-timeout taskmanager.network.request-backoff.initial
taskmanager.network.request-backoff.max taskmanager.network.retries
taskmanager.network.tcp-connection.enable-reuse-across-jobs taskmanager.numberOfTaskSlots
taskmanager.registration.timeout taskmanager.resource-id taskmanager.rpc.bind-port
taskmanager.runtime.hashjoin-bloom-filters taskmanager.runtime.large-record-handler taskmanager.runtime.max-fan
taskmanager.runtime.sort-spilling-threshold taskmanager.slot.timeout taskmanager.system-out.log.cache-upload-interval
taskmanager.system-out.log.thread-name.enabled taskmanager.system-out.mode web.address
web.backpressure.refresh-interval web.checkpoints.subtask-history web.exception-history-size web.history
web.max-history-size web.port web.refresh-interval
"""

FOREIGN_KEYS = frozenset(_KEYS.split())

READ_PREFIXES = (AZURE_KEY_PREFIX,)
"""The beginnings of keys that are read here although no option lists them: each names an account."""


def is_foreign(key: str) -> bool:
    """Test whether a key is one of Flink's that has no effect here.

    Args:
        key: The key.

    Returns:
        True if it has no effect.
    """
    return key in FOREIGN_KEYS or (key.startswith(FOREIGN_PREFIXES) and not key.startswith(READ_PREFIXES))
