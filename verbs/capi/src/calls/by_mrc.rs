//! RC queue pairs whose WRITEs MRC carries (`pumice run --mrc`).

use std::time::Duration;

use pumice_device::outside;
use pumice_transport::types::SendOpcode;

use crate::log::log_warning;
use crate::objects::queue_pair::Qp;
use crate::platform::Errno;

/// Pause between two looks whether MRC has done what it has to do before RC goes on.
const LOOK: Duration = Duration::from_micros(20);
/// Number of looks after which a post is refused as if the queue were full.
const MOST_LOOKS: u32 = 100_000;

const fn is_write(number: u32) -> bool {
    number == SendOpcode::RdmaWrite as u32 || number == SendOpcode::RdmaWriteWithImm as u32
}

/// Reports whether requests with these operations go by MRC. The first one decides for the queue pair; one
/// that MRC does not have ends its way for good, when all that was posted before has completed.
///
/// # Errors
/// ENOMEM: what was posted before does not complete.
pub(crate) fn goes_by_mrc(qp: &Qp, mut opcodes: impl Iterator<Item = u32>) -> Result<bool, Errno> {
    let Some(way) = qp.way() else { return Ok(false) };
    let other = opcodes.find(|number| !is_write(*number));
    match (way.is_by_mrc(), other) {
        (Some(false), _) => Ok(false),
        (Some(true), None) => Ok(true),
        (None, None) => {
            let is_there = qp.hca().has_mrc_twin(qp.number());
            way.decide(is_there);
            Ok(is_there)
        }
        (None, Some(number)) => {
            say(qp, number);
            way.decide(false);
            Ok(false)
        }
        (Some(true), Some(number)) => {
            for look in 0.. {
                if qp.hca().mrc_twin_is_idle(qp.number()) {
                    break;
                }
                if look >= MOST_LOOKS {
                    return Err(Errno(libc::ENOMEM));
                }
                qp.hca().drive();
                outside::sleep(LOOK);
            }
            qp.hca().leave_mrc_twin(qp.number());
            say(qp, number);
            way.decide(false);
            Ok(false)
        }
    }
}

#[cold]
fn say(qp: &Qp, number: u32) {
    log_warning(|| {
        let name = SendOpcode::from_number(number).map_or("an unknown operation", |opcode| opcode.name());
        format!("queue pair {} posts {name}, which MRC does not have: it goes on as RC", qp.number())
    });
}
