//! The kinds of findings of the doctor.

use pumice_device::findings::{Finding, FindingFamily, FindingKind, Level};

macro_rules! kinds {
    ($($constant:ident $name:literal $what:literal;)*) => {
        $(
            #[doc = $what]
            pub(crate) static $constant: FindingKind =
                FindingKind::new($name, FindingFamily::Machine, Level::Ok, $what);
        )*
    };
}

kinds! {
    RDMA_RXE "rdma_rxe" "Whether the kernel's own software RoCE is loaded.";
    ADDRESSES "addresses" "Whether an interface has an IP address.";
    UDP_PORT "UDP port 4791" "Whether the RoCE port can be had on an address, and who has it otherwise.";
    GID "gid" "The entries of the GID table.";
    PATH_MTU "path MTU" "The largest path MTU of an interface.";
    DEVICE "device" "Whether the device opens with the settings of the environment, and moves bytes.";
    FOLDER "folder" "Where processes of this user meet.";
    WIRE "wire" "By which medium packets go to this user's other processes.";
    SHARED_MEMORY "shared memory" "Whether this user's processes can share memory.";
    LIBRARY "library" "Whether `pumice run` has the libraries that programs load.";
    WORLDS "worlds" "Whether `pumice world` can run programs here so that a run repeats.";
    LOOPBACK "loopback" "Whether packets arrive over the loopback interface.";
    OFFLOAD "offload" "Whether the kernel cuts and joins batches of packets.";
    RECEIVE_BUFFER "receive buffer" "How much room the kernel grants for packets that arrive.";
    SEND_BUFFER "send buffer" "How much room the kernel grants for packets that leave.";
}

/// Makes a finding that all is well.
pub(crate) fn ok(kind: &'static FindingKind, found: impl Into<String>) -> Finding {
    Finding::new(kind, "", found)
}

/// Makes a finding that something works, but slower or with less than possible.
pub(crate) fn warning(
    kind: &'static FindingKind,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    ok(kind, found).at_level(Level::Warning).with_remedy(remedy)
}

/// Makes a finding that keeps the device from working until it is remedied.
pub(crate) fn blocking(
    kind: &'static FindingKind,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    ok(kind, found).at_level(Level::Error).with_remedy(remedy)
}
