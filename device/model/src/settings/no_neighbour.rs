//! The setting of hosts that answer no ARP and no neighbour discovery.

use std::net::IpAddr;

/// The peers whose hosts are assumed not to answer, so that no MAC address is found for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoNeighbour {
    /// All hosts but the device's own.
    All,
    /// The hosts with these addresses.
    Of(Vec<IpAddr>),
}

impl NoNeighbour {
    /// Parses `all`, or addresses with commas between them.
    ///
    /// # Errors
    /// Fails if the text is neither.
    pub fn parse(value: &str) -> Result<NoNeighbour, String> {
        if value == "all" {
            return Ok(NoNeighbour::All);
        }
        let one = |part: &str| {
            part.parse().map_err(|_| format!("{part:?} is not an IP address: write it as 192.0.2.7, or all"))
        };
        value.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(NoNeighbour::Of)
    }

    /// Reports whether the host of a peer is one of these hosts.
    pub fn has(&self, peer: IpAddr) -> bool {
        match self {
            NoNeighbour::All => true,
            NoNeighbour::Of(addresses) => addresses.contains(&peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_by_their_addresses() {
        let two = NoNeighbour::parse("192.0.2.7, fd00::2").unwrap();
        assert!(two.has([192, 0, 2, 7].into()) && two.has("fd00::2".parse().unwrap()));
        assert!(!two.has([192, 0, 2, 8].into()));
        assert!(NoNeighbour::parse("all").unwrap().has([192, 0, 2, 8].into()));
        for wrong in ["", "192.0.2.7,", "host", "192.0.2"] {
            assert!(NoNeighbour::parse(wrong).unwrap_err().contains("is not an IP address"), "{wrong}");
        }
    }
}
