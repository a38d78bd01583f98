//! Timers that send signals, and the time at which the next one is due.

/// A timer of a process that sends signals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alarm {
    pub(crate) process: u32,
    /// Id of the timer; `None` for that of `alarm` and `setitimer`.
    pub(crate) number: Option<i32>,
    pub(crate) clock: i32,
    /// Signal that it sends; 0 for none.
    pub(crate) signal: i32,
    /// Value that the signal carries.
    pub(crate) value: u64,
    /// Thread that gets the signal, by its id inside of the world; `None` for any thread of the process.
    pub(crate) thread: Option<i32>,
    pub(crate) next_ns: Option<u64>,
    pub(crate) interval_ns: u64,
}

/// All timers that send signals.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    pub(crate) alarms: Vec<Alarm>,
    /// Number of timers that `timer_create` has made so far.
    pub(crate) made: i32,
}

/// A signal that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueSignal {
    pub(crate) process: u32,
    pub(crate) thread: Option<i32>,
    pub(crate) signal: i32,
    pub(crate) value: u64,
    /// Id of the timer; 0 for that of `alarm`.
    pub(crate) number: i32,
}

impl Alarms {
    pub(crate) fn get(&mut self, process: u32, number: Option<i32>) -> Option<&mut Alarm> {
        self.alarms.iter_mut().find(|alarm| alarm.process == process && alarm.number == number)
    }

    /// Returns the timer of `alarm` and `setitimer`, which is made if it does not exist.
    pub(crate) fn plain(&mut self, process: u32) -> &mut Alarm {
        let known = self.alarms.iter().position(|alarm| alarm.process == process && alarm.number.is_none());
        let index = known.unwrap_or_else(|| {
            self.alarms.push(Alarm {
                process,
                number: None,
                clock: libc::CLOCK_REALTIME,
                signal: libc::SIGALRM,
                value: 0,
                thread: None,
                next_ns: None,
                interval_ns: 0,
            });
            self.alarms.len() - 1
        });
        &mut self.alarms[index]
    }

    /// Removes the timers of a process that has ended or executes another program: timers of `timer_create`
    /// do not survive that.
    pub(crate) fn forget(&mut self, process: u32, has_ended: bool) {
        self.alarms.retain(|alarm| alarm.process != process || (alarm.number.is_none() && !has_ended));
    }

    /// Returns the time at which the next signal is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.alarms.iter().filter_map(|alarm| alarm.next_ns).min()
    }

    /// Takes the signals that are due.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<DueSignal> {
        let mut due = Vec::new();
        for alarm in &mut self.alarms {
            let Some(next_ns) = alarm.next_ns.filter(|next_ns| *next_ns <= now_ns) else { continue };
            let interval_ns = alarm.interval_ns;
            // Missed expirations are not sent again.
            let missed = (now_ns - next_ns).checked_div(interval_ns).unwrap_or(0);
            alarm.next_ns = (interval_ns > 0).then(|| next_ns + (missed + 1) * interval_ns);
            if alarm.signal != 0 {
                let Alarm { process, thread, signal, value, .. } = *alarm;
                due.push(DueSignal { process, thread, signal, value, number: alarm.number.unwrap_or(0) });
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_with_an_interval_expires_again() {
        let mut alarms = Alarms::default();
        let alarm = alarms.plain(1);
        (alarm.next_ns, alarm.interval_ns) = (Some(10), 20);
        assert!(alarms.take_due(9).is_empty());
        assert_eq!(alarms.take_due(10).len(), 1);
        assert_eq!(alarms.next_ns(), Some(30));
        assert_eq!(alarms.take_due(75).len(), 1);
        assert_eq!(alarms.next_ns(), Some(90));
        alarms.forget(1, false);
        assert_eq!(alarms.next_ns(), Some(90));
        alarms.forget(1, true);
        assert_eq!(alarms.next_ns(), None);
    }
}
