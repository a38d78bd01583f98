//! The fault plan of a device, which may change while the program runs.

use pumice_events::{Event, Topics};
use pumice_faults::calls::CallKey;
use pumice_faults::live::{LiveAnswer, LiveOrder};
use pumice_faults::{Moment, Parts, PlanAtWork};
use pumice_ground::clock::Clock;

use super::put_off::PutOff;
use super::tables::Resources;

impl Resources {
    /// From now on a plan decides what happens. Before objects are made.
    pub(crate) fn set_plan(&mut self, plan: PlanAtWork, clock: &Clock) {
        let PlanAtWork { packets, completions, completion_events, calls } = plan;
        self.faults = Some(packets);
        self.put_off = Some(Box::new(PutOff::new(completions, completion_events, clock.clone())));
        self.call_rules = calls;
        self.ask_about_packets();
        self.pace_events();
        self.puts_off = self.put_off.as_ref().is_some_and(|put_off| put_off.is_needed());
    }

    /// What is sent is told to those who decide, while there are rules.
    fn ask_about_packets(&mut self) {
        self.topics = self.events.topics();
        if self.faults.as_ref().is_some_and(|faults| faults.is_active()) {
            self.topics |= Topics::PACKETS;
        }
    }

    /// Work requests that were carried out are told of to those who decide, while there are rules.
    fn ask_about_work(&mut self) {
        let Some(put_off) = &mut self.put_off else { return };
        let was_asked = std::mem::replace(&mut self.puts_off, put_off.is_needed());
        if self.puts_off && !was_asked {
            put_off.faults.begin_late();
        }
    }

    /// Events of completion channels are told of, too.
    fn pace_events(&mut self) {
        self.cq_common.pacer = self.put_off.as_ref().and_then(|put_off| put_off.pacer());
        let Some(pacer) = &self.cq_common.pacer else { return };
        for (_, entry) in self.cqs.iter() {
            if let Some(ordinal) = entry.ordinal {
                entry.cq.pace(pacer, ordinal);
            }
        }
    }

    /// Another process of this user wants the plan to change.
    pub(crate) fn change_plan(&mut self, order: &LiveOrder, moment: Moment) -> LiveAnswer {
        let Resources { faults, put_off, call_rules, events, .. } = self;
        let (Some(packets), Some(put_off)) = (faults, put_off) else {
            return LiveAnswer::refusing("its device takes no fault plans: open it with an Opening");
        };
        let PutOff { faults, event_faults, .. } = &mut **put_off;
        let mut parts = Parts {
            packets,
            completions: Some(&mut **faults),
            completion_events: Some(&**event_faults),
            calls: call_rules.as_deref(),
        };
        let answer = parts.obey(order, moment, &mut |change| {
            events.emit(&Event::FaultPlanChanged { change });
        });
        self.ask_about_packets();
        self.ask_about_work();
        self.pace_events();
        answer
    }

    /// A time has come for which rules wait.
    #[cold]
    pub(crate) fn time_came(&mut self, now_ns: u64) {
        let Resources { faults, events, .. } = self;
        let Some(faults) = faults else { return };
        faults.time_came(now_ns, &mut |fault| events.emit(&Event::CallFaultApplied { fault }));
    }

    /// A call has returned: whether something is to happen to the device.
    pub fn called(&mut self, key: &CallKey<'_>) -> bool {
        let Resources { faults, events, .. } = self;
        let Some(faults) = faults else { return false };
        faults.called(key, &mut |fault| events.emit(&Event::CallFaultApplied { fault }))
    }
}
