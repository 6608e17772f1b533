"""What nodes can say, and what can go wrong with them.

The words are plausible, not anybody's: they are put together from public catalogues (NVIDIA's Xid
list, the checks of ByteRobust, DLRover, Minder, NVRx). What a real data set means by the same
word may differ. Roles follow NVRx: a *root* kind points at its node, a *cascade* kind spreads over
the fleet once the job stalls, a *teardown* kind comes when the end is decided, *noise* means nothing.
No detector may know any of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay.traces.synth.draws import Table

__all__ = [
    "BABBLE",
    "CRASH",
    "DECOYS",
    "FAULTS",
    "GENERATIONS",
    "HANG",
    "NOISE",
    "PRELUDE",
    "TEARDOWN",
    "WAVES",
    "Fault",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """A way in which a node fails. Pairs are (least, most), in whole seconds.

    Attributes:
        name: Its class, as ``truth.json`` names it.
        label: What ``ip_status`` says of the node.
        weights: How often it comes, on Hopper, Ampere and others.
        leads: The kind that says it first, by weight.
        companions: Kinds that follow on the same node, with their probabilities; root kinds first.
        lag: From onset to the first word: crash at once, inspection 2 to 30 s, time-out minutes.
        spread: From the first word to each companion.
        poll: Between repeats of a sticky first kind.
        stall: From onset to the first cascade.
        end: From onset to the end of the job.
        dies: Probability that the node never speaks again after its first words.
        hang: Whether the fleet times out instead of crashing.
        shared: Probability that another node says the companions too.
    """

    name: str
    label: str
    weights: tuple[float, float, float]
    leads: Table[str]
    companions: tuple[tuple[str, float], ...]
    lag: tuple[int, int] = (0, 4)
    spread: tuple[int, int] = (0, 5)
    poll: tuple[int, int] = (10, 15)
    stall: tuple[int, int] = (1, 20)
    end: tuple[int, int] = (60, 240)
    dies: float = 0.2
    hang: bool = False
    shared: float = 0.0


GENERATIONS = Table({"Hopper": 60.0, "Ampere": 30.0, "Blackwell": 10.0})
"""A guess, and flagged as one: the published set does not say."""

FAULTS = (
    # weights: Llama 3 table 5 (419 interruptions), FT-HSDP and Unicron; by generation after
    # "Story of Two GPUs" (Hopper: more memory faults; Ampere: more NVLink and GSP faults)
    Fault(
        "gpu_memory",
        "gpu_fault",
        (28, 18, 24),
        Table({"xid_48": 3, "xid_94": 3, "xid_95": 2, "xid_64": 2}),
        (("row_remap_failure", 0.6), ("dcgm_unhealthy", 0.5), ("xid_63", 0.4)),
    ),
    Fault(
        "gpu_lost",
        "gpu_fault",
        (20, 16, 20),
        Table({"xid_79": 3, "gpu_lost": 2}),
        (("gpu_lost", 0.6), ("pcie_width_low", 0.5), ("nvidia_smi_timeout", 0.4)),
        lag=(0, 10),
        dies=0.3,
    ),
    Fault(
        "nvlink",
        "gpu_fault",
        (6, 16, 10),
        Table({"xid_74": 3, "nvlink_down": 2}),
        (("nvlink_down", 0.7), ("dcgm_unhealthy", 0.4)),
    ),
    Fault(
        "driver",
        "gpu_fault",
        (7, 13, 8),
        Table({"xid_119": 3, "xid_120": 2}),
        (("gpu_driver_hang", 0.7), ("nvidia_smi_timeout", 0.6)),
        lag=(0, 10),
        stall=(2, 40),
    ),
    Fault(
        "nic",
        "network_fault",
        (11, 11, 12),
        Table({"nic_down": 3, "nic_lost": 2}),
        (("nic_down", 0.5), ("nic_lost", 0.5), ("link_flap", 0.7), ("rdma_traffic_zero", 0.5)),
        lag=(1, 30),
        poll=(15, 30),
        stall=(1, 40),
        end=(90, 600),
    ),
    Fault(
        "pcie",
        "gpu_fault",
        (5, 5, 5),
        Table({"pcie_width_low": 1}),
        (("tensor_util_low", 0.5), ("xid_79", 0.5), ("pcie_replay", 0.7)),
        lag=(2, 30),
        stall=(10, 90),
        end=(120, 900),
        dies=0.0,
    ),
    Fault(
        "thermal",
        "gpu_fault",
        (3, 2, 2),
        Table({"gpu_high_temp": 1}),
        (("mfu_drop", 0.6), ("tensor_util_low", 0.6)),
        lag=(2, 10),
        stall=(10, 120),
        end=(120, 900),
        dies=0.0,
    ),
    Fault(
        "storage",
        "host_fault",
        (3, 3, 3),
        Table({"disk_fault": 2, "fs_mount_failed": 2}),
        (("fs_mount_failed", 0.6), ("disk_fault", 0.5), ("cpu_overload", 0.3)),
        lag=(0, 10),
        dies=0.0,
    ),
    Fault(
        "host",
        "host_fault",
        (6, 6, 6),
        Table({"os_kernel_panic": 1}),
        (("node_not_ready", 0.8), ("nic_lost", 0.5)),
        lag=(0, 2),
        spread=(0, 8),
        dies=1.0,
    ),
    Fault(
        "hang",
        "hang",
        (7, 7, 7),
        Table({"stack_outlier": 2, "step_hang": 1}),
        (("rdma_traffic_zero", 0.7), ("tensor_util_low", 0.7), ("step_hang", 0.6)),
        lag=(45, 240),
        spread=(0, 20),
        poll=(30, 60),
        stall=(60, 300),
        end=(600, 3600),
        dies=0.0,
        hang=True,
        shared=0.3,
    ),
    Fault(
        "slow",
        "slow",
        (3, 3, 3),
        Table({"mfu_drop": 1, "tensor_util_low": 1}),
        (("stack_outlier", 0.7), ("tensor_util_low", 0.6), ("gpu_high_temp", 0.3)),
        lag=(60, 600),
        spread=(0, 60),
        poll=(60, 120),
        stall=(300, 1200),
        end=(1200, 4300),
        dies=0.0,
        hang=True,
        shared=0.3,
    ),
    Fault(
        "sdc",
        "gpu_fault",
        (2, 1, 1),
        Table({"loss_nan": 1}),
        (("stack_outlier", 0.6), ("dcgm_unhealthy", 0.6)),
        lag=(20, 120),
        spread=(0, 30),
        poll=(30, 60),
        stall=(30, 120),
        end=(300, 1800),
        dies=0.0,
        shared=0.2,
    ),
)

NOISE = Table(
    {
        "failed_to_forward": 24,
        "metric_report_failed": 15,
        "ecc_sbe": 12,
        "cpu_overload": 11,
        "log_agent_lag": 10,
        "link_flap": 8,
        "pcie_replay": 7,
        "disk_usage_high": 6,
        "xid_43": 5,  # most Xids by count are the application's doing (Fire-Flyer)
        "xid_31": 3,
        "node_clock_skew": 3,
        "xid_13": 2,
        "xid_63": 1,
    }
)
"""Background, independent of any fault."""

BABBLE = Table(
    {
        "failed_to_forward": 20,
        "xid_45": 18,  # 168,924 of them against 10 others in two days (NVSentinel)
        "metric_report_failed": 14,
        "xid_43": 12,
        "link_flap": 10,
        "ecc_sbe": 10,
        "log_agent_lag": 8,
        "pcie_replay": 6,
        "xid_31": 4,
    }
)
"""What a chatty healthy node shouts."""

PRELUDE = Table({"ecc_sbe": 3, "pcie_replay": 3, "link_flap": 2, "xid_63": 1, "xid_43": 1})
"""Weak signs on a node that will fail."""

CRASH = Table(
    {
        "connection_reset_by_peer": 5,
        "nccl_remote_error": 5,
        "process_exit": 4,
        "xid_45": 4,
        "worker_no_heartbeat": 2,
        "rendezvous_timeout": 1,
    }
)
"""Cascade of a job that crashes."""

HANG = Table(
    {
        "nccl_timeout": 6,
        "nccl_watchdog": 6,
        "job_hang": 4,
        "worker_no_heartbeat": 2,
        "rdma_traffic_zero": 2,
        "step_hang": 1,
    }
)
"""Cascade of a job that hangs until it times out."""

TEARDOWN = Table({"pod_terminated": 4, "sigterm": 4, "agent_exit": 3, "failed_to_forward": 3})
"""Once the end is decided."""

WAVES = Table(
    {
        "nvlink_down": 4,  # 214 of 288 nodes at once, no fault, all planned reboots (NVSentinel)
        "nic_down": 3,
        "dcgm_unhealthy": 3,
        "gpu_driver_hang": 2,
        "fs_mount_failed": 2,
        "nvidia_smi_timeout": 2,
        "node_not_ready": 2,
    }
)
"""Fleet-wide false waves."""

RARE = 14.0  # head start, so that a kind seen in a handful of faults misleads as well


def _decoys() -> Table[str]:
    weights: dict[str, float] = {}
    for fault in FAULTS:
        for kind, probability in (*fault.leads.shares, *fault.companions):
            if kind not in NOISE.items:
                weights[kind] = weights.get(kind, RARE) + sum(fault.weights) * probability
    return Table(weights)


DECOYS = _decoys()
"""Root kinds that a healthy node says now and then, alone and without consequence: each misleads
in proportion to how often it is right, so that no kind gives the culprit away by itself."""
