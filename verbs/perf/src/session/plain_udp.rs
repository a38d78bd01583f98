//! Rounds of plain UDP beside those of the device.

use std::net::SocketAddr;
use std::time::Duration;

use pumice_device::port::RawWait;

use super::run::Session;
use crate::control::Round;
use crate::error::Result;
use crate::plan::MeasuredQuantity;
use crate::raw::{RawEndpoint, Stream};
use crate::report::RoundFigures;

impl Session {
    pub(super) fn plain_udp_round(&mut self, duration: Duration, measured: &mut RoundFigures) -> Result<()> {
        let Some((mut raw, peer)) = self.raw.take() else { return Ok(()) };
        let outcome = self.raw_with(&mut raw, peer, duration, measured);
        self.raw = Some((raw, peer));
        outcome
    }

    fn raw_with(
        &mut self,
        raw: &mut RawEndpoint,
        peer: SocketAddr,
        duration: Duration,
        measured: &mut RoundFigures,
    ) -> Result<()> {
        let client = raw.address()?;
        raw.drain()?;
        let packet_bytes = self.plan.size_bytes.min(self.plan.mtu_bytes) + self.plan.header_bytes();
        if self.plan.quantity == MeasuredQuantity::Latency {
            if self.plan.size_bytes > self.plan.mtu_bytes {
                // One datagram is no yardstick for a message of several packets.
                return Ok(());
            }
            let wait = if self.plan.events { RawWait::Block } else { RawWait::Spin };
            self.start(Round::RawEcho { client, block: self.plan.events })?;
            let times = raw.ping_pong(peer, packet_bytes, wait, duration, &mut self.times)?;
            self.stop(0)?;
            // A machine that is busy with other work may lose every datagram of a round, which has no
            // yardstick then.
            measured.set_raw_round_trips(&self.plan, times);
            return Ok(());
        }
        let singles = self.plan.quantity == MeasuredQuantity::Rate;
        let stream = Stream { packet_bytes, singles };
        self.start(Round::RawStream { client, credit_bytes: stream.credit_bytes() })?;
        let bytes_per_second = raw.stream(peer, stream, duration)?;
        self.stop(0)?;
        measured.raw =
            Some(if singles { bytes_per_second / packet_bytes as f64 / 1e6 } else { bytes_per_second / 1e9 });
        Ok(())
    }
}
