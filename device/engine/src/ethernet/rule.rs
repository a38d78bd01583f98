//! Rules that steer frames to raw packet queue pairs (`ibv_create_flow`).

use pumice_transport::wire::FrameFields;

/// A header whose fields a rule compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Ethernet, with a VLAN tag.
    Ethernet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The comparison of a frame with a header. A frame fits if it has the header, and its fields equal these
/// where the mask has bits. Both have the fields as [`FrameFields`] has them; what is beyond their end counts
/// as masked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowMatch {
    /// Header that is compared.
    pub header: Header,
    /// Values of its fields.
    pub value: Box<[u8]>,
    /// Bits of the fields that count.
    pub mask: Box<[u8]>,
}

impl FlowMatch {
    fn fits(&self, frame: &FrameFields) -> bool {
        let fields: Option<&[u8]> = match self.header {
            Header::Ethernet => Some(&frame.ethernet),
            Header::Ipv4 => frame.ipv4.as_ref().map(|fields| &fields[..]),
            Header::Ipv6 => frame.ipv6.as_ref().map(|fields| &fields[..]),
            Header::Tcp => frame.tcp.as_ref().map(|fields| &fields[..]),
            Header::Udp => frame.udp.as_ref().map(|fields| &fields[..]),
        };
        let wanted = || self.value.iter().zip(&self.mask);
        fields.is_some_and(|fields| {
            fields.iter().zip(wanted()).all(|(field, (value, mask))| (field ^ value) & mask == 0)
        })
    }
}

/// The kind of a rule (`IBV_FLOW_ATTR_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// Frames that fit everything that the rule compares.
    Normal,
    /// Frames that no other rule takes.
    AllDefault,
    /// Frames to groups that no other rule takes.
    MulticastDefault,
    /// All frames, which other rules get as well.
    Sniffer,
}

/// The action on a frame that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowAction {
    /// The queue pair gets it.
    Deliver,
    /// No queue pair gets it.
    Drop,
}

/// A rule that steers frames to a queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRule {
    /// Kind of the rule.
    pub kind: FlowKind,
    /// Number of the rule: of the rules that a frame fits, those with the smallest number count.
    pub priority: u16,
    /// Port of the device, from 1.
    pub port_num: u8,
    /// Comparisons; all of them must fit.
    pub matches: Vec<FlowMatch>,
    /// Action on the frames that fit.
    pub action: FlowAction,
    /// Rules of larger numbers get the frame as well.
    pub lets_through: bool,
}

impl FlowRule {
    #[doc(hidden)]
    pub fn fits(&self, frame: &FrameFields) -> bool {
        let [first, ..] = frame.ethernet;
        let is_to_group = first & 1 != 0;
        let suits = self.kind != FlowKind::MulticastDefault || is_to_group;
        suits && self.matches.iter().all(|each| each.fits(frame))
    }

    /// Returns the rank of the rule, by which rules are applied: sniffers, others by their number, the
    /// defaults last.
    pub fn rank(&self) -> (u8, u16) {
        match self.kind {
            FlowKind::Sniffer => (0, 0),
            FlowKind::Normal => (1, self.priority),
            FlowKind::MulticastDefault => (2, self.priority),
            FlowKind::AllDefault => (3, self.priority),
        }
    }

    /// Reports whether rules of a larger rank get the frames that this rule takes.
    pub fn goes_on(&self) -> bool {
        self.lets_through || self.kind == FlowKind::Sniffer
    }
}
