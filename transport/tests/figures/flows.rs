//! Flows in a network: hosts whose queue pairs take turns, for a time.

use crate::ends::{End, Outlet, QueuePairs, Terms};
use crate::fabric::{Event, Fabric, Shape};

/// The protocol of all flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Mrc,
    Rc,
}

/// A sender and its receiver.
pub(crate) struct Flow {
    pub(crate) terms: Terms,
    pub(crate) ends: [End; 2],
    /// Bytes of each WRITE.
    pub(crate) message_bytes: u32,
    /// WRITEs that are posted at a time.
    pub(crate) depth: u64,
    /// WRITEs that are posted in all.
    pub(crate) most: u64,
    /// False if its window or rate let nothing leave when it was asked last, and nothing has come since.
    may_send: bool,
}

pub(crate) struct Simulation {
    pub(crate) fabric: Fabric,
    pub(crate) flows: Vec<Flow>,
    /// Flows that send from each host, in turns.
    of_host: Vec<Vec<u32>>,
    next_of_host: Vec<usize>,
    pump_is_due: Vec<bool>,
    protocol: Protocol,
}

impl Simulation {
    pub(crate) fn new(shape: Shape, protocol: Protocol, seed: u64) -> Simulation {
        let hosts = shape.hosts();
        Simulation {
            fabric: Fabric::new(shape, seed),
            flows: Vec::new(),
            of_host: vec![Vec::new(); hosts],
            next_of_host: vec![0; hosts],
            pump_is_due: vec![false; hosts],
            protocol,
        }
    }

    /// Adds a flow of one queue pair, which sends when the simulation goes on. Returns its number.
    pub(crate) fn flow(
        &mut self,
        hosts: [usize; 2],
        plane: u8,
        message_bytes: u32,
        depth: u64,
        most: u64,
    ) -> usize {
        let number = self.flows.len() as u32;
        let terms = Terms { number, hosts, plane };
        let shape = self.fabric.shape;
        let end = |index| match self.protocol {
            Protocol::Mrc => End::mrc(index, terms, shape),
            Protocol::Rc => End::rc(index, terms, shape),
        };
        self.flows.push(Flow { terms, ends: [end(0), end(1)], message_bytes, depth, most, may_send: true });
        self.of_host[hosts[0]].push(number);
        self.wake(hosts[0]);
        number as usize
    }

    /// Adds what one host sends to another with all its planes: one queue pair of MRC, or one of RC for each
    /// plane. Returns the numbers of the flows.
    pub(crate) fn bundle(
        &mut self,
        hosts: [usize; 2],
        message_bytes: u32,
        depth: u64,
        most: u64,
    ) -> Vec<usize> {
        let planes = match self.protocol {
            Protocol::Mrc => 1,
            Protocol::Rc => self.fabric.shape.planes,
        };
        let share = message_bytes / u32::from(planes);
        (0..planes).map(|plane| self.flow(hosts, plane, share, depth, most)).collect()
    }

    fn wake(&mut self, host: usize) {
        if !std::mem::replace(&mut self.pump_is_due[host], true) {
            let now_ns = self.fabric.now_ns;
            self.fabric.schedule(now_ns, Event::Pump { host });
        }
    }

    /// Bytes of a flow that have arrived.
    pub(crate) fn delivered(&self, flow: usize) -> u64 {
        self.flows[flow].ends[1].device.written_bytes
    }

    pub(crate) fn delivered_by(&self, flows: &[usize]) -> u64 {
        flows.iter().map(|flow| self.delivered(*flow)).sum()
    }

    pub(crate) fn failed(&self) -> usize {
        self.flows.iter().filter(|flow| flow.ends.iter().any(End::has_failed)).count()
    }

    /// Runs for a time.
    pub(crate) fn run(&mut self, time_ns: u64) {
        let end_ns = self.fabric.now_ns + time_ns;
        while let Some(event) = self.fabric.next(end_ns) {
            match event {
                Event::Free { link } => {
                    if let Some(host) = self.fabric.freed(link) {
                        self.wake(host);
                    }
                }
                Event::Arrives { link, packet } => {
                    if let Some(packet) = self.fabric.arrives(link, packet) {
                        let (index, to) = (packet.flow as usize, packet.to);
                        let now_ns = self.fabric.now_ns;
                        let flow = &mut self.flows[index];
                        let route = flow.ends[to].route_to(flow.terms.hosts[1 - to]);
                        flow.ends[to].receive(now_ns, &packet, &route);
                        self.touch(index, to);
                    }
                }
                Event::Timer { flow, end } => self.expire(flow as usize, end),
                Event::Pump { host } => self.pump(host),
            }
        }
    }

    fn expire(&mut self, flow: usize, end: usize) {
        let now_ns = self.fabric.now_ns;
        let one = &mut self.flows[flow].ends[end];
        if one.timer_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            one.timer_ns = None;
        }
        if one.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            one.timeout(now_ns);
        }
        self.touch(flow, end);
    }

    /// An end has something to do: answers leave at once, data in its turn.
    fn touch(&mut self, flow: usize, end: usize) {
        if end == 1 {
            self.turn(flow, 1, 0);
        } else {
            self.flows[flow].may_send = true;
            self.wake(self.flows[flow].terms.hosts[0]);
        }
        self.note_deadline(flow, end);
    }

    fn note_deadline(&mut self, flow: usize, end: usize) {
        let one = &mut self.flows[flow].ends[end];
        if let Some(at_ns) = one.deadline_ns()
            && one.timer_ns.is_none_or(|known| at_ns < known)
        {
            one.timer_ns = Some(at_ns);
            self.fabric.schedule(at_ns, Event::Timer { flow: flow as u32, end });
        }
    }

    /// An end sends its answers, and so much data. Returns the number of packets of data.
    fn turn(&mut self, flow: usize, end: usize, data_left: usize) -> usize {
        let Flow { ends, terms, .. } = &mut self.flows[flow];
        let (one, now_ns) = (&mut ends[end], self.fabric.now_ns);
        let terms = *terms;
        let mut outlet = Outlet { fabric: &mut self.fabric, terms, end, data_left, sent_data: 0, open: None };
        match &mut one.qp {
            QueuePairs::Mrc(qp) => drop(qp.transmit(now_ns, &mut one.device, &mut outlet)),
            QueuePairs::Rc(qp) => {
                qp.transmit_responses(now_ns, &mut one.device, &mut outlet);
                if data_left > 0 {
                    qp.transmit_requests(now_ns, &mut one.device, &mut outlet);
                }
            }
        }
        outlet.sent_data
    }

    /// The flows of a host send in turns, a packet each, while ports have room.
    fn pump(&mut self, host: usize) {
        self.pump_is_due[host] = false;
        let count = self.of_host[host].len();
        let planes = self.fabric.shape.planes;
        let mut in_vain = 0;
        while in_vain < count && (0..planes).any(|plane| self.fabric.has_room(host, plane)) {
            let place = self.next_of_host[host] % count;
            self.next_of_host[host] = place + 1;
            let flow = self.of_host[host][place] as usize;
            if !self.flows[flow].may_send {
                in_vain += 1;
                continue;
            }
            self.post(flow);
            // The path of a packet is chosen before its port is asked: one that is busy is passed over.
            let attempts = if self.protocol == Protocol::Mrc { 2 * planes } else { 1 };
            let sends = self.flows[flow].ends[0].wants_to_send();
            let sent = sends && (0..attempts).any(|_| self.turn(flow, 0, 1) > 0);
            self.note_deadline(flow, 0);
            // RC has one port: if that has room, the queue pair waits for something else.
            let has_room = self.fabric.has_room(host, self.flows[flow].terms.plane);
            self.flows[flow].may_send = sent || (sends && (self.protocol == Protocol::Mrc || !has_room));
            in_vain = if sent { 0 } else { in_vain + 1 };
        }
    }

    fn post(&mut self, flow: usize) {
        let Flow { ends: [one, _], message_bytes, depth, most, .. } = &mut self.flows[flow];
        while one.posted < *most && one.outstanding() < *depth && !one.has_failed() {
            one.post(*message_bytes);
        }
    }
}
