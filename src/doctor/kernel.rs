//! Examines the running kernel: soft-RoCE, and the limits of socket buffers.

use std::fs;
use std::path::Path;

use pumice_device::findings::{Finding, FindingKind};

use super::kind::{RDMA_RXE, RECEIVE_BUFFER, SEND_BUFFER, ok, warning};

/// The presence of the kernel's own software RoCE.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SoftRoce {
    /// The module is loaded and may therefore hold the UDP port.
    pub(crate) loaded: bool,
    /// RDMA devices on an interface of the kernel (rdma_rxe, siw), such as "rxe0 on eth0".
    pub(crate) devices: Vec<String>,
}

/// Finds rdma_rxe below `sys` (normally /sys).
pub(crate) fn soft_roce(sys: &Path) -> SoftRoce {
    let mut devices: Vec<String> = Vec::new();
    for entry in fs::read_dir(sys.join("class/infiniband")).into_iter().flatten().flatten() {
        // Only software devices name a parent interface there.
        if let Ok(parent) = fs::read_to_string(entry.path().join("parent")) {
            devices.push(format!("{} on {}", entry.file_name().to_string_lossy(), parent.trim()));
        }
    }
    devices.sort();
    SoftRoce { loaded: sys.join("module/rdma_rxe").exists(), devices }
}

pub(crate) fn soft_roce_finding(soft_roce: &SoftRoce) -> Finding {
    let devices = soft_roce.devices.join(", ");
    match (soft_roce.loaded, devices.is_empty()) {
        (false, true) => ok(&RDMA_RXE, "not loaded"),
        (false, false) => ok(&RDMA_RXE, format!("not loaded; other software devices: {devices}")),
        (true, true) => warning(
            &RDMA_RXE,
            "loaded, without a device; it may hold UDP port 4791",
            "If the port is reported as taken, unload it: sudo modprobe -r rdma_rxe.",
        ),
        (true, false) => warning(
            &RDMA_RXE,
            format!("loaded, with {devices}; it holds UDP port 4791"),
            "Remove the device and the module (sudo rdma link delete NAME; sudo modprobe -r rdma_rxe), or \
            run \
             pumice in a network namespace of its own.",
        ),
    }
}

/// Size of a socket buffer, in bytes, that lets a sender run ahead without loss.
const WANTED_BUFFER_BYTES: u64 = 4 << 20;

/// Examines the socket buffer sizes that the kernel grants.
pub(crate) fn socket_buffers(proc: &Path) -> Vec<Finding> {
    let limit = |name: &'static str, kind: &'static FindingKind, what: &str| {
        let text = fs::read_to_string(proc.join("sys/net/core").join(name)).ok();
        match text.and_then(|text| text.trim().parse::<u64>().ok()) {
            None => ok(kind, format!("net.core.{name} cannot be read here: the host's limit applies")),
            Some(bytes) if bytes >= WANTED_BUFFER_BYTES => {
                ok(kind, format!("up to {} KiB are granted", bytes / 1024))
            }
            Some(bytes) => warning(
                kind,
                format!(
                    "up to {} KiB are granted, {} KiB are wanted: {what}",
                    bytes / 1024,
                    WANTED_BUFFER_BYTES / 1024
                ),
                format!(
                    "Raise the limit (in the host, for a container): sudo sysctl -w \
                    net.core.{name}={WANTED_BUFFER_BYTES}."
                ),
            ),
        }
    };
    vec![
        limit("rmem_max", &RECEIVE_BUFFER, "bursts are lost and sent again sooner"),
        limit("wmem_max", &SEND_BUFFER, "large transfers pause more often"),
    ]
}

#[cfg(test)]
mod tests {
    use pumice_device::findings::Level;

    use super::*;
    use std::path::PathBuf;

    /// A temporary folder that stands for /proc or /sys; dropping the value removes it.
    struct ScratchTree(PathBuf);

    impl ScratchTree {
        fn new(name: &str, files: &[(&str, &str)]) -> ScratchTree {
            let root = std::env::temp_dir().join(format!("pumice-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a file has a folder")).expect("create a folder");
                fs::write(path, text).expect("write a file");
            }
            ScratchTree(root)
        }
    }

    impl Drop for ScratchTree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn soft_roce_is_found_with_its_devices() {
        let sys = ScratchTree::new(
            "rxe",
            &[("module/rdma_rxe/refcnt", "0\n"), ("class/infiniband/rxe0/parent", "eth0\n")],
        );
        let found = soft_roce(&sys.0);
        assert_eq!(found, SoftRoce { loaded: true, devices: vec!["rxe0 on eth0".to_owned()] });
        let finding = soft_roce_finding(&found);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.sentence.contains("rxe0 on eth0"));
        assert_eq!(soft_roce_finding(&SoftRoce::default()).level, Level::Ok);
    }

    #[test]
    fn small_socket_buffers_are_a_warning_that_names_the_setting() {
        let proc = ScratchTree::new(
            "mem",
            &[("sys/net/core/rmem_max", "212992\n"), ("sys/net/core/wmem_max", "4194304\n")],
        );
        let found = socket_buffers(&proc.0);
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].remedy.as_deref().is_some_and(|text| text.contains("net.core.rmem_max=4194304")));
        assert_eq!(found[1].level, Level::Ok);
        // Network namespaces of older kernels do not show the limits.
        assert!(socket_buffers(Path::new("/nonexistent")).iter().all(|f| f.level == Level::Ok));
    }
}
