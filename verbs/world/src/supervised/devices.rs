//! The device numbers of files without a name.

/// The device numbers of files without a name, as `stat` shows them.
pub(crate) struct DeviceNumbers {
    sockets: u64,
    pipes: u64,
    name_spaces: u64,
}

impl DeviceNumbers {
    /// Reads the device numbers of this kernel.
    pub(crate) fn of_kernel() -> DeviceNumbers {
        use std::os::unix::fs::MetadataExt as _;
        let of_file =
            |file: std::os::fd::OwnedFd| std::fs::File::from(file).metadata().map_or(0, |known| known.dev());
        let socket = std::os::unix::net::UnixDatagram::unbound();
        DeviceNumbers {
            sockets: socket.map_or(0, |socket| of_file(socket.into())),
            pipes: nix::unistd::pipe().map_or(0, |(reader, _)| of_file(reader)),
            name_spaces: std::fs::metadata("/proc/self/ns/net").map_or(0, |known| known.dev()),
        }
    }

    /// Returns the device number of sockets, pipes or namespaces, by the word in their links.
    pub(crate) fn of_kind(&self, kind: &str) -> u64 {
        match kind {
            "socket" => self.sockets,
            "pipe" => self.pipes,
            _ => self.name_spaces,
        }
    }
}
