//! Packets of MRC, as captures show them.

use std::io::{self, Write};

use pumice_transport::mrc::wire::{
    EndpointOperation, MrcBody, MrcHeaders, MrcPacket, NackReason, PathMark, SackTrigger, TrimmedPacket,
};
use pumice_transport::wire::Syndrome;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The headers of a packet of MRC behind its BTH, and its length of data.
#[derive(Debug)]
pub(crate) struct Multipath {
    /// Name of the opcode.
    pub(crate) name: &'static str,
    pub(crate) payload_bytes: usize,
    flags: [bool; 2],
    body: Option<MrcBody>,
}

impl Multipath {
    /// Returns what a packet of MRC says; `None` if the bytes are none. `is_trimmed`: a switch has cut off
    /// its data.
    pub(crate) fn of(bytes: &[u8], is_trimmed: bool) -> Option<Multipath> {
        if let Ok(MrcPacket { headers: MrcHeaders { bth, body }, payload }) = MrcPacket::parse(bytes) {
            let flags = [bth.ack_request, bth.retransmission];
            let name = bth.opcode.info().name;
            return Some(Multipath { name, payload_bytes: payload.len(), flags, body: Some(body) });
        }
        let TrimmedPacket { bth, .. } = TrimmedPacket::parse(bytes).ok().filter(|_| is_trimmed)?;
        let (name, flags) = (bth.opcode.info().name, [bth.ack_request, bth.retransmission]);
        Some(Multipath { name, payload_bytes: 0, flags, body: None })
    }

    /// Returns what the headers say, each with its name.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut add = |name, value: String| all.push((name, value));
        if self.flags[1] {
            add("retransmission", "yes".to_owned());
        }
        match &self.body {
            None => add("trimmed", "yes".to_owned()),
            Some(MrcBody::Write(write)) => {
                add("msn", write.meth.msn.to_string());
                add("va", format!("{:#x}", write.reth.address));
                add("rkey", format!("{:#x}", write.reth.rkey));
                add("length", write.reth.length.to_string());
                if let Some(imm) = &write.imm {
                    add("imm", format!("{:#010x}", u32::from_be_bytes(imm.0)));
                }
            }
            Some(MrcBody::Acknowledge(aeth)) => {
                add(
                    "answer",
                    match Syndrome::from_byte(aeth.syndrome) {
                        Syndrome::Nak(code) => format!("NAK {code:?}"),
                        _ => "ACK".to_owned(),
                    },
                );
                add("messages", aeth.msn.to_string());
            }
            Some(MrcBody::Sack(seth, state)) => {
                add("cack", seth.cack_psn.value().to_string());
                match seth.trigger {
                    SackTrigger::Packet { offset } => add("trigger", offset.to_string()),
                    SackTrigger::Probe { probe_id } => add("probe", probe_id.to_string()),
                }
                add("path", format!("{:#x}", seth.entropy.0));
                if seth.bitmap != 0 {
                    add("base", seth.sack_offset.to_string());
                    add("bitmap", format!("{:#x}", seth.bitmap));
                }
                match seth.mark {
                    PathMark::None | PathMark::Reserved => {}
                    PathMark::SkipOnce => add("mark", "skip once".to_owned()),
                    PathMark::AlwaysSkip => add("mark", "always skip".to_owned()),
                }
                add("out_of_order", state.ooo_count.to_string());
            }
            Some(MrcBody::Nack(neth)) => {
                add("reason", reason(neth.reason));
                add("refused", neth.nack_psn.value().to_string());
                add("path", format!("{:#x}", neth.entropy.0));
            }
            Some(MrcBody::Probe(peth)) => add("probe", peth.probe_id.to_string()),
            Some(MrcBody::EndpointRequest(erth)) => match erth.operation {
                EndpointOperation::EvProbe => add("asks", "path".to_owned()),
                EndpointOperation::PortStatusUpdate => add("planes", format!("{:#x}", erth.port_status_mask)),
            },
            Some(MrcBody::EndpointResponse(_)) => {}
        }
        all
    }

    /// Writes each header as ` name value`.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.flags[0] {
            write!(out, " ack-request")?;
        }
        self.fields().iter().try_for_each(|(name, value)| write!(out, "  {name} {value}"))
    }
}

impl Serialize for Multipath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields();
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (name, value) in &fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn reason(reason: NackReason) -> String {
    match reason {
        NackReason::Trimmed => "trimmed".to_owned(),
        NackReason::TrimmedLastHop => "trimmed at the last hop".to_owned(),
        NackReason::NoBitmap => "no bitmap".to_owned(),
        NackReason::NoPacketBuffer => "no packet buffer".to_owned(),
        NackReason::NoResource => "no resource".to_owned(),
        NackReason::PsnOutOfWindow => "PSN out of the window".to_owned(),
        NackReason::UnexpectedEvent => "unexpected event".to_owned(),
        NackReason::Other(number) => format!("reason {number:#04x}"),
    }
}
