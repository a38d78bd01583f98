//! Answers to queries of management classes that are not served: counters, path records, port information.

use super::{MAD_BYTES, Mad, MadHeader, class, method};

/// The status "this method and attribute are not supported".
const UNSUPPORTED_METHOD_ATTRIBUTE: u16 = 0x000c;

/// Returns the answer to a query that no class serves, as the Linux MAD layer gives it for rdma_rxe: the
/// query itself as a GET_RESPONSE with the status "not supported". Only GET and SET are answered; subnet
/// management is never answered, because it belongs to queue pair 0.
pub fn refuse(mad: &Mad<'_>) -> Option<[u8; MAD_BYTES]> {
    let header = mad.header();
    let subnet_management = matches!(header.class, class::SUBNET_LID | class::SUBNET_DIRECTED);
    if subnet_management || !matches!(header.method, method::GET | method::SET) {
        return None;
    }
    let mut answer = *mad.bytes();
    let refused = MadHeader { method: method::GET_RESPONSE, status: UNSUPPORTED_METHOD_ATTRIBUTE, ..*header };
    refused.emit(&mut answer);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::attribute;

    fn query(class: u8, method: u8) -> [u8; MAD_BYTES] {
        let mut bytes = [0x5a; MAD_BYTES];
        let header = MadHeader {
            class,
            method,
            class_version: 1,
            ..MadHeader::communication(attribute::CLASS_PORT_INFO, 7, 9)
        };
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn queries_come_back_as_not_supported() {
        for class in [class::PERFORMANCE, class::SUBNET_ADMINISTRATION, class::COMMUNICATION] {
            for method in [method::GET, method::SET] {
                let query = query(class, method);
                let answer = refuse(&Mad::parse(&query).unwrap()).unwrap();
                assert_eq!(answer[..8], [1, class, 1, 0x81, 0, 0x0c, 0, 0]);
                assert_eq!(answer[8..], query[8..]);
            }
        }
    }

    #[test]
    fn other_methods_and_subnet_management_are_not_answered() {
        for (class, method) in [
            (class::PERFORMANCE, method::GET_RESPONSE),
            (class::PERFORMANCE, method::SEND),
            (class::SUBNET_LID, method::GET),
            (class::SUBNET_DIRECTED, method::SET),
        ] {
            assert!(refuse(&Mad::parse(&query(class, method)).unwrap()).is_none());
        }
    }
}
