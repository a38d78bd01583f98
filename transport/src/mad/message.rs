//! A CM message: its type, and its value.

use super::{
    CommId, Drep, Dreq, MAD_BYTES, Mad, MadError, MadHeader, Mra, Rej, Rep, Req, Rtu, ServiceId, SidrRep,
    SidrReq, attribute, class, method,
};
use crate::mad::field::CM_BYTES;

/// A message of communication management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the message of its name")]
pub enum CmMessage {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
}

impl CmMessage {
    /// Reads the message in a MAD. Reserved bits are ignored.
    ///
    /// # Errors
    /// Fails for another class, version or method, and for messages that RoCE does not have: all of them are
    /// to be ignored, or to be answered as [`refuse`](super::refuse) says.
    pub fn parse(mad: &Mad<'_>) -> Result<CmMessage, MadError> {
        let header = mad.header();
        if header.class != class::COMMUNICATION {
            return Err(MadError::Class(header.class));
        }
        if header.class_version != 2 {
            return Err(MadError::ClassVersion(header.class_version));
        }
        if header.method != method::SEND {
            return Err(MadError::Method(header.method));
        }
        let body = &mad.body();
        Ok(match header.attribute {
            attribute::REQ => CmMessage::Req(Req::read(body, header.modifier)),
            attribute::MRA => CmMessage::Mra(Mra::read(body)),
            attribute::REJ => CmMessage::Rej(Rej::read(body)),
            attribute::REP => CmMessage::Rep(Rep::read(body, header.modifier)),
            attribute::RTU => CmMessage::Rtu(Rtu::read(body)),
            attribute::DREQ => CmMessage::Dreq(Dreq::read(body)),
            attribute::DREP => CmMessage::Drep(Drep::read(body)),
            attribute::SIDR_REQ => CmMessage::SidrReq(SidrReq::read(body)),
            attribute::SIDR_REP => CmMessage::SidrRep(SidrRep::read(body)),
            //= linux:cm.c#cm_lap_handler
            //| A LAP on RoCE loads no alternate path.
            attribute::LAP | attribute::APR => return Err(MadError::AlternatePath),
            other => return Err(MadError::Attribute(other)),
        })
    }

    /// Returns the MAD of this message in a transaction.
    pub fn emit(&self, transaction: u64) -> [u8; MAD_BYTES] {
        let mut body = [0; CM_BYTES];
        let (attribute, modifier) = match self {
            CmMessage::Req(req) => {
                req.write(&mut body);
                (attribute::REQ, req.ece.options)
            }
            CmMessage::Rep(rep) => {
                rep.write(&mut body);
                (attribute::REP, rep.ece.options)
            }
            CmMessage::Mra(mra) => (write(attribute::MRA, || mra.write(&mut body)), 0),
            CmMessage::Rej(rej) => (write(attribute::REJ, || rej.write(&mut body)), 0),
            CmMessage::Rtu(rtu) => (write(attribute::RTU, || rtu.write(&mut body)), 0),
            CmMessage::Dreq(dreq) => (write(attribute::DREQ, || dreq.write(&mut body)), 0),
            CmMessage::Drep(drep) => (write(attribute::DREP, || drep.write(&mut body)), 0),
            CmMessage::SidrReq(req) => (write(attribute::SIDR_REQ, || req.write(&mut body)), 0),
            CmMessage::SidrRep(rep) => (write(attribute::SIDR_REP, || rep.write(&mut body)), 0),
        };
        let mut mad = [0; MAD_BYTES];
        MadHeader::communication(attribute, transaction, modifier).emit(&mut mad);
        let (_, room) = mad.split_at_mut(MadHeader::LEN);
        room.copy_from_slice(&body);
        mad
    }

    /// Returns the connection at the receiver that the message is for, if it names one. A request names a
    /// service instead (see [`CmMessage::service`]), and a REJ by timeout may name no connection: it is
    /// identified by the sender's node GUID and id.
    pub fn recipient(&self) -> Option<CommId> {
        let id = match self {
            CmMessage::Req(_) | CmMessage::SidrReq(_) => CommId::NONE,
            CmMessage::Mra(mra) => mra.remote_id,
            CmMessage::Rej(rej) => rej.remote_id,
            CmMessage::Rep(rep) => rep.remote_id,
            CmMessage::Rtu(rtu) => rtu.remote_id,
            CmMessage::Dreq(dreq) => dreq.remote_id,
            CmMessage::Drep(drep) => drep.remote_id,
            CmMessage::SidrRep(rep) => rep.request_id,
        };
        (id != CommId::NONE).then_some(id)
    }

    /// Returns the service that a request asks for.
    pub const fn service(&self) -> Option<ServiceId> {
        match self {
            CmMessage::Req(req) => Some(req.service_id),
            CmMessage::SidrReq(req) => Some(req.service_id),
            _ => None,
        }
    }
}

fn write(attribute: u16, body: impl FnOnce()) -> u16 {
    body();
    attribute
}
