//! The messages to queue pair 1: which programs connect, and the parameters that they agree on.

use std::io::{self, Write};

use pumice_transport::mad::{
    CmMessage, CommId, GSI_Q_KEY, IpHeader, Mad, Mra, Rej, Rep, Req, ServiceId, SidrRep, SidrReq,
};
use pumice_transport::wire::Packet;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A message of communication management, or another datagram to queue pair 1.
#[derive(Debug)]
pub(crate) struct CmMessageText {
    message: &'static str,
    fields: Vec<(&'static str, FieldValue)>,
}

#[derive(Debug, PartialEq, Eq)]
enum FieldValue {
    Number(u64),
    /// A number that is printed in hexadecimal.
    Bits(u64),
    Text(String),
}

/// The fields of a message, in the order in which they are printed.
#[derive(Default)]
struct CmFields(Vec<(&'static str, FieldValue)>);

impl CmFields {
    fn number(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.push((name, FieldValue::Number(value.into())));
    }

    fn bits(&mut self, name: &'static str, value: impl Into<u64>) {
        self.0.push((name, FieldValue::Bits(value.into())));
    }

    fn text(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, FieldValue::Text(value.to_string())));
    }

    /// Adds the connection's ids at both ends.
    fn connection(&mut self, local: CommId, remote: CommId) {
        self.bits("local_id", local.0);
        self.bits("remote_id", remote.0);
    }

    /// Adds the private data, without the zeros that fill the rest of the message.
    fn private_data(&mut self, bytes: &[u8]) {
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            let bytes = bytes.get(..used).unwrap_or_default();
            self.text("private_data", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
    }

    /// Adds the service and the private data; services of RDMA-CM have addresses before it.
    fn service(&mut self, id: ServiceId, private_data: &[u8]) {
        self.text("service", id);
        let (addresses, private_bytes) = match id.to_rdma_cm() {
            Some(_) => IpHeader::split(private_data),
            None => (None, private_data),
        };
        if let Some(IpHeader { source_port, source, destination }) = addresses {
            self.text("from", format!("{source} port {source_port}"));
            self.text("to", destination);
        }
        self.private_data(private_bytes);
    }
}

/// Returns the message of connection management in a packet, if it can be parsed.
pub(crate) fn message_of(packet: &Packet<'_>) -> Option<Box<CmMessage>> {
    let mad = Mad::parse(packet.payload()).ok()?;
    CmMessage::parse(&mad).ok().map(Box::new)
}

impl CmMessageText {
    /// Parses a packet to queue pair 1; `None` if it is for another queue pair.
    pub(crate) fn of(packet: &Packet<'_>) -> Option<CmMessageText> {
        let headers = packet.headers();
        let deth = headers.deth.as_ref()?;
        if headers.bth.destination.value() != 1 || deth.qkey != GSI_Q_KEY {
            return None;
        }
        let message = Mad::parse(packet.payload()).and_then(|mad| CmMessage::parse(&mad));
        Some(message.map_or_else(
            |error| CmMessageText {
                message: "other",
                fields: vec![("reason", FieldValue::Text(error.to_string()))],
            },
            |message| CmMessageText::of_message(&message),
        ))
    }

    fn of_message(message: &CmMessage) -> CmMessageText {
        let mut fields = CmFields::default();
        let message = match message {
            CmMessage::Req(req) => request(&mut fields, req),
            CmMessage::Rep(rep) => reply(&mut fields, rep),
            CmMessage::Rej(rej) => rejection(&mut fields, rej),
            CmMessage::Mra(mra) => delay(&mut fields, mra),
            CmMessage::SidrReq(req) => service_request(&mut fields, req),
            CmMessage::SidrRep(rep) => service_reply(&mut fields, rep),
            CmMessage::Rtu(rtu) => {
                fields.connection(rtu.local_id, rtu.remote_id);
                fields.private_data(&rtu.private_data);
                "RTU"
            }
            CmMessage::Dreq(dreq) => {
                fields.connection(dreq.local_id, dreq.remote_id);
                fields.bits("remote_qp", dreq.remote_qpn.value());
                fields.private_data(&dreq.private_data);
                "DREQ"
            }
            CmMessage::Drep(drep) => {
                fields.connection(drep.local_id, drep.remote_id);
                fields.private_data(&drep.private_data);
                "DREP"
            }
        };
        CmMessageText { message, fields: fields.0 }
    }

    /// Writes `  CM MESSAGE  field value  field value`.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "  CM {}", self.message)?;
        for (name, value) in &self.fields {
            let name = name.replace('_', " ");
            match value {
                FieldValue::Number(number) => write!(out, "  {name} {number}")?,
                FieldValue::Bits(bits) => write!(out, "  {name} {bits:#x}")?,
                FieldValue::Text(text) => write!(out, "  {name} {text}")?,
            }
        }
        Ok(())
    }
}

fn request(fields: &mut CmFields, req: &Req) -> &'static str {
    fields.bits("local_id", req.local_id.0);
    fields.bits("qp", req.local_qpn.value());
    fields.number("starting_psn", req.starting_psn.value());
    fields.text("transport", format!("{:?}", req.transport).to_uppercase());
    fields.number("mtu", req.mtu().map_or(0, |mtu| mtu.bytes() as u64));
    fields.number("responder_resources", req.responder_resources);
    fields.number("initiator_depth", req.initiator_depth);
    fields.number("retries", req.retry_count);
    fields.number("rnr_retries", req.rnr_retry_count);
    fields.number("timeout", req.primary.local_ack_timeout);
    fields.number("cm_retries", req.max_cm_retries);
    fields.number("srq", req.srq);
    fields.service(req.service_id, &req.private_data);
    "REQ"
}

fn reply(fields: &mut CmFields, rep: &Rep) -> &'static str {
    fields.connection(rep.local_id, rep.remote_id);
    fields.bits("qp", rep.local_qpn.value());
    fields.number("starting_psn", rep.starting_psn.value());
    fields.number("responder_resources", rep.responder_resources);
    fields.number("initiator_depth", rep.initiator_depth);
    fields.number("rnr_retries", rep.rnr_retry_count);
    fields.number("srq", rep.srq);
    fields.private_data(&rep.private_data);
    "REP"
}

fn rejection(fields: &mut CmFields, rej: &Rej) -> &'static str {
    fields.connection(rej.local_id, rej.remote_id);
    fields.text("of", format!("{:?}", rej.rejected).to_uppercase());
    fields.text("reason", rej.reason);
    fields.private_data(&rej.private_data);
    "REJ"
}

fn delay(fields: &mut CmFields, mra: &Mra) -> &'static str {
    fields.connection(mra.local_id, mra.remote_id);
    fields.text("of", format!("{:?}", mra.of).to_uppercase());
    fields.number("service_timeout", mra.service_timeout);
    fields.private_data(&mra.private_data);
    "MRA"
}

fn service_request(fields: &mut CmFields, req: &SidrReq) -> &'static str {
    fields.bits("request_id", req.request_id.0);
    fields.service(req.service_id, &req.private_data);
    "SIDR_REQ"
}

fn service_reply(fields: &mut CmFields, rep: &SidrRep) -> &'static str {
    fields.bits("request_id", rep.request_id.0);
    fields.text("status", rep.status);
    fields.bits("qp", rep.qpn.value());
    fields.bits("qkey", rep.q_key);
    fields.text("service", rep.service_id);
    fields.private_data(&rep.private_data);
    "SIDR_REP"
}

impl Serialize for CmMessageText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", self.message)?;
        for (name, value) in &self.fields {
            match value {
                FieldValue::Number(number) | FieldValue::Bits(number) => map.serialize_entry(name, number)?,
                FieldValue::Text(text) => map.serialize_entry(name, text)?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::mad::{PortSpace, PrivateData, RejectReason, Rejected};

    use pumice_transport::mad::IP_HEADER_BYTES;

    use super::*;

    fn text(message: &CmMessage) -> String {
        let mut out = Vec::new();
        CmMessageText::of_message(message).write_text(&mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("a line is text")
    }

    #[test]
    fn a_rejection_says_of_what_and_why() {
        let rej = CmMessage::Rej(Rej {
            local_id: CommId(0),
            remote_id: CommId(0x1_0002),
            rejected: Rejected::Req,
            info_length: 0,
            reason: RejectReason::INVALID_SERVICE_ID,
            info: PrivateData::NONE,
            private_data: PrivateData::new(&[0, 1, 0]).expect("it fits"),
        });
        assert_eq!(
            text(&rej),
            "  CM REJ  local id 0x0  remote id 0x10002  of REQ  reason invalid service id (8)  private data \
            0001"
        );
    }

    #[test]
    fn a_request_for_a_port_says_who_asks() {
        let addresses =
            IpHeader { source_port: 40000, source: [10, 9, 0, 2].into(), destination: [10, 9, 0, 1].into() };
        let mut private_data = [0; SidrReq::PRIVATE_DATA_BYTES];
        private_data[..IP_HEADER_BYTES].copy_from_slice(&addresses.emit());
        private_data[IP_HEADER_BYTES] = 0xab;
        let req = CmMessage::SidrReq(SidrReq {
            request_id: CommId(7),
            pkey: 0xffff,
            service_id: ServiceId::rdma_cm(PortSpace::Udp, 7174),
            private_data: PrivateData(private_data),
        });
        assert_eq!(
            text(&req),
            "  CM SIDR_REQ  request id 0x7  service Udp port 7174  from 10.9.0.2 port 40000  to 10.9.0.1  \
             private data ab"
        );
        let json = serde_json::to_value(CmMessageText::of_message(&req)).expect("a message is JSON");
        assert_eq!((&json["message"], &json["request_id"]), (&"SIDR_REQ".into(), &7.into()));
    }
}
