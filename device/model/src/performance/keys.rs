//! The numbers that a performance model can have, one row each.

/// A number of a performance model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // KEYS says what each is
pub enum Key {
    Post,
    Poll,
    Register,
    Doorbell,
    InlineBytes,
    Fetch,
    Send,
    Virtual,
    Receive,
    Byte,
    Message,
    AdapterMessage,
    Packet,
    PcieGbit,
    Acknowledge,
    Read,
    ReadGbit,
    Atomic,
    AtomicSerial,
    Contexts,
    ContextMiss,
    RateGbit,
    HeaderBytes,
    Cable,
    Switch,
    Mtu,
}

/// A row of the table of numbers.
#[derive(Debug, Clone, Copy)]
pub struct KeyInfo {
    /// The number.
    pub key: Key,
    /// Its name in a file; the unit is the last part.
    pub name: &'static str,
    /// The meaning of the number.
    pub what: &'static str,
}

macro_rules! keys {
    ($($key:ident $name:literal $what:literal)*) => {
        /// All numbers, in the order of [`Key`].
        pub const KEYS: &[KeyInfo] = &[$(KeyInfo { key: Key::$key, name: $name, what: $what }),*];
    };
}

keys! {
    Post "post_ns" "the processor posts a request (each call of ibv_post_send)"
    Poll "poll_ns" "a poll that finds completions; a poll in vain waits for the next arrival"
    Register "register_ns" "the processor registers memory"
    Doorbell "doorbell_ns" "the doorbell crosses PCIe"
    InlineBytes "inline_bytes" "the longest message that the doorbell carries"
    Fetch "fetch_ns" "the adapter fetches a longer message from memory by PCIe"
    Send "send_ns" "the sender's adapter handles a request"
    Virtual "virtual_ns" "the same in addition, for an adapter that a virtual machine has"
    Receive "receive_ns" "the receiver's adapter handles a packet, and writes it to memory by PCIe"
    Byte "byte_ns" "each byte of a message's first packet, which all stages store and pass on"
    Message "message_ns" "the shortest time between two messages of one queue pair"
    AdapterMessage "adapter_message_ns" "the shortest time between two messages of the adapter"
    Packet "packet_ns" "the shortest time between two packets"
    PcieGbit "pcie_gbit" "rate of the PCIe slot, of which headers take a ninth"
    Acknowledge "acknowledge_ns" "an acknowledgement, apart from the network, up to the completion"
    Read "read_ns" "the response of a READ, apart from the network, up to the completion"
    ReadGbit "read_gbit" "the highest rate of READs of one queue pair"
    Atomic "atomic_ns" "the response of an atomic, apart from the network"
    AtomicSerial "atomic_serial_ns" "the shortest time between two atomics"
    Contexts "contexts" "the number of queue pairs that the adapter keeps at hand"
    ContextMiss "context_miss_ns" "each message in addition, where a queue pair is not at hand"
    RateGbit "rate_gbit" "rate of the link"
    HeaderBytes "header_bytes" "what a packet takes on the link beside its payload"
    Cable "cable_ns" "the cables between two adapters, and their ports"
    Switch "switch_ns" "the switch between two adapters"
    Mtu "mtu_bytes" "payload of a full packet"
}

impl Key {
    /// Returns the number of a name.
    pub fn of(name: &str) -> Option<Key> {
        KEYS.iter().find(|row| row.name == name).map(|row| row.key)
    }

    /// Returns its name in a file.
    pub fn name(self) -> &'static str {
        KEYS.get(self as usize).map_or("", |row| row.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_row() {
        for (index, row) in KEYS.iter().enumerate() {
            assert_eq!(row.key as usize, index, "{}", row.name);
            assert_eq!(Key::of(row.name), Some(row.key));
        }
        assert_eq!(Key::of("speed"), None);
    }
}
