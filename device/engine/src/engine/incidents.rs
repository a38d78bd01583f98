//! The operations of incidents on the device: on its objects, its ports and itself.

use pumice_model::event::async_event::AsyncElement;
use pumice_model::fates::details::FIRST_PORT;
use pumice_model::fates::incident::Adapter;
use pumice_model::port::LinkChange;
use pumice_platform::link_settings::{LinkSettings, Speed, Width};
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::Engine;

impl Adapter for Engine {
    fn fail_cq(&mut self, cq: u32) {
        self.resources.fail_cq(cq);
    }

    fn raise_srq_limit(&mut self, srq: u32) {
        self.resources.raise_srq_limit(srq);
    }

    fn fail_srq(&mut self, srq: u32) {
        self.resources.fail_srq(srq);
    }

    fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.end_queue_pair(qpn, event);
    }

    fn raise_qp_async_event(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.raise_qp_event(qpn, event);
    }

    fn raise_port_async_event(&mut self, port: u8, event: AsyncEventType) {
        if self.resources.port.ports.get(port).is_some() {
            self.resources.port.async_events.raise(event, AsyncElement::Port(port));
        }
    }

    // The condition that sysfs shows of a port is published before the program can have the event.

    fn take_port_down(&mut self, port: u8, until_ns: u64) {
        self.port_conditions().publish_incident(port, |condition| condition.is_down = true);
        self.resources.set_port_down(port, until_ns);
        self.plan_effects.outages.port_up_ns.extend(port, until_ns);
    }

    fn bring_port_up(&mut self, port: u8) {
        self.port_conditions().publish_incident(port, |condition| {
            (condition.is_down, condition.is_cable_out) = (false, false);
        });
        self.plan_effects.outages.port_up_ns.end(port);
        self.plan_effects.outages.cable_in_ns.end(port);
        self.resources.plug_in_cable(port);
        self.resources.set_port_up(port);
    }

    fn pull_cable(&mut self, port: u8, until_ns: u64) {
        self.port_conditions().publish_incident(port, |condition| condition.is_cable_out = true);
        self.resources.unplug_cable(port, until_ns);
        self.plan_effects.outages.cable_in_ns.extend(port, until_ns);
    }

    fn train_link(&mut self, port: u8, speed: Option<Speed>, width: Option<Width>) {
        self.port_conditions().publish_incident(port, |condition| {
            condition.speed = speed.or(condition.speed);
            condition.width = width.or(condition.width);
        });
        self.resources.change_rate(port, speed, width);
    }

    fn change_link(&mut self, words: LinkSettings, until_ns: Option<u64>) {
        let change = match until_ns {
            None => LinkChange::Permanent(words),
            Some(until_ns) => {
                self.plan_effects.outages.link_over_ns = Some(until_ns);
                LinkChange::Temporary(words)
            }
        };
        self.port.change_link(&change);
    }

    fn restore_link(&mut self) {
        self.plan_effects.outages.link_over_ns = None;
        self.port.change_link(&LinkChange::Restored);
    }

    fn move_gid(&mut self, port: u8, from: u32, to: u32) {
        if let Some(found) = self.resources.port.ports.get(port) {
            let origins = found.gids.origins_after(from, to);
            self.port_conditions().publish_incident(port, |condition| condition.gid_origins = origins);
        }
        self.resources.move_gid(port, from, to);
    }

    fn change_addresses(&mut self, port: u8) {
        self.resources.port.presence.change_address();
        self.raise_port_async_event(port, AsyncEventType::GidChange);
    }

    fn disconnect(&mut self, qpn: Qpn, now_ns: u64) {
        let peer = self.queue_pairs.by_number(qpn).and_then(|(_, entry)| entry.qp.peer());
        let Some((address, peer)) = peer else { return };
        if self.gsi.disconnect_from(address, peer, now_ns) {
            self.send_mads(now_ns);
        }
    }

    fn die(&mut self) {
        self.resources.port.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
        self.freeze(u64::MAX);
    }

    /// Queue pairs are flushed, as drivers do for a device that does not answer. The record of the first port
    /// says that the whole device is unplugged.
    fn leave(&mut self, back_ns: u64, now_ns: u64) {
        let for_ns = if back_ns == u64::MAX { u64::MAX } else { back_ns.saturating_sub(now_ns) };
        self.port_conditions()
            .publish_change(FIRST_PORT, now_ns, |condition| condition.removed_for_ns = Some(for_ns));
        if self.resources.port.presence.leave(back_ns) {
            self.resources.port.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
            self.resources.flush_queue_pairs();
            self.freeze(u64::MAX);
        }
    }

    fn freeze(&mut self, until_ns: u64) {
        let stopped_until_ns = &mut self.plan_effects.outages.stopped_until_ns;
        *stopped_until_ns = Some(stopped_until_ns.unwrap_or(0).max(until_ns));
    }
}
