//! Who listens: a list that is made when the device opens and does not change, and guests, who come and go
//! while the program runs.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pumice_ground::clock::Clock;
use pumice_transport::event::Topic;

use super::kinds::{Event, Topics};

/// Something that listens to the events of a device.
pub trait Subscriber: Send + Sync {
    /// What it wants to hear of. Asked once.
    fn topics(&self) -> Topics;

    /// Something of its topics happened, at this time of the device's clock. Called under the engine's lock,
    /// or by a thread that polls: it must not call the device, and must not wait.
    fn hear(&self, at_ns: u64, event: &Event<'_>);

    /// Time passes without events: called now and then while the device is driven, if a subscriber listens to
    /// batches.
    fn pass_time(&self, at_ns: u64) {
        let _ = at_ns;
    }

    /// Waits until what was heard so far has taken effect, or `patience` is over.
    fn settle(&self, patience: Duration) {
        let _ = patience;
    }

    /// The device closes: waits until everything that was heard has taken effect.
    fn finish(&self) {}
}

/// Guests that a device has at a time.
pub const MAX_GUESTS: usize = 8;

/// The subscribers of a device.
pub struct Subscribers {
    /// Those of the list.
    own: Topics,
    /// Those of the list and of the guests.
    topics: AtomicU32,
    /// Each with its topics.
    list: Vec<(Topics, Arc<dyn Subscriber>)>,
    /// Who of the list listens to a topic, by the number of its bit, in the order of the list.
    of_topic: [Box<[Arc<dyn Subscriber>]>; u32::BITS as usize],
    /// The one of those, where there is no other.
    only: [Option<Arc<dyn Subscriber>>; u32::BITS as usize],
    /// Those of the guests.
    guest_topics: AtomicU32,
    guests: RwLock<Vec<Guest>>,
    /// Guests so far.
    came: AtomicU64,
    clock: Clock,
}

/// Who listens for a while.
#[derive(Clone)]
struct Guest {
    number: GuestNumber,
    topics: Topics,
    subscriber: Arc<dyn Subscriber>,
}

/// Which guest of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestNumber(u64);

impl Default for Subscribers {
    /// No subscribers.
    fn default() -> Subscribers {
        Subscribers::new(Vec::new(), Clock::monotonic())
    }
}

impl fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribers").field("topics", &self.topics()).finish_non_exhaustive()
    }
}

impl Subscribers {
    /// These, who are told the time of this clock.
    pub fn new(list: Vec<Box<dyn Subscriber>>, clock: Clock) -> Subscribers {
        let list: Vec<_> = list.into_iter().map(|one| (one.topics(), Arc::from(one))).collect();
        let own = list.iter().fold(Topics::empty(), |all, (topics, _)| all | *topics);
        let of_topic: [Box<[_]>; _] = std::array::from_fn(|bit| {
            let topic = Topics::from_bits_retain(1 << bit);
            list.iter().filter(|(own, _)| own.intersects(topic)).map(|(_, one)| Arc::clone(one)).collect()
        });
        let only = std::array::from_fn(|bit| match of_topic.get(bit).map(|all| &**all) {
            Some([only]) => Some(Arc::clone(only)),
            _ => None,
        });
        Subscribers {
            own,
            topics: AtomicU32::new(own.bits()),
            of_topic,
            only,
            list,
            guest_topics: AtomicU32::new(0),
            guests: RwLock::default(),
            came: AtomicU64::new(0),
            clock,
        }
    }

    /// The topics that have a subscriber.
    #[inline]
    pub fn topics(&self) -> Topics {
        // Who comes or goes is heard of soon; nothing else is published by this word.
        Topics::from_bits_retain(self.topics.load(Ordering::Relaxed))
    }

    /// One more listens from now on, until [`Subscribers::leave`]. `None`: there are [`MAX_GUESTS`] already.
    /// What asks once which topics have a subscriber must ask again.
    pub fn join(&self, subscriber: Arc<dyn Subscriber>) -> Option<GuestNumber> {
        let mut guests = self.guests.write().unwrap_or_else(PoisonError::into_inner);
        if guests.len() >= MAX_GUESTS {
            return None;
        }
        let number = GuestNumber(self.came.fetch_add(1, Ordering::Relaxed));
        guests.push(Guest { number, topics: subscriber.topics(), subscriber });
        self.note_topics(&guests);
        Some(number)
    }

    /// A guest hears nothing any more when this returns.
    pub fn leave(&self, number: GuestNumber) {
        let mut guests = self.guests.write().unwrap_or_else(PoisonError::into_inner);
        let gone = guests.iter().position(|guest| guest.number == number).map(|index| guests.remove(index));
        self.note_topics(&guests);
        drop(guests);
        // What it holds is let go without the lock.
        drop(gone);
    }

    fn note_topics(&self, guests: &[Guest]) {
        let topics = guests.iter().fold(Topics::empty(), |all, guest| all | guest.topics);
        self.guest_topics.store(topics.bits(), Ordering::Relaxed);
        self.topics.store((self.own | topics).bits(), Ordering::Relaxed);
    }

    /// The guests that there are now.
    fn guests(&self) -> Vec<Guest> {
        if self.guest_topics.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.guests.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether any of these topics has a subscriber.
    #[inline]
    pub fn listen(&self, topics: Topics) -> bool {
        self.topics().intersects(topics)
    }

    /// Tells those who listen.
    #[inline]
    pub fn emit(&self, event: &Event<'_>) {
        let topics = event.topics();
        if self.listen(topics) {
            self.deliver_now(topics, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_now(&self, topics: Topics, event: &Event<'_>) {
        self.deliver(self.now_ns(), topics, event);
    }

    /// Now, on the clock whose times subscribers are told.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Who listens to this topic, if that is one of the list and no other, and there are no guests.
    #[inline(always)]
    pub fn only_one(&self, topic: Topic) -> Option<&dyn Subscriber> {
        let only = self.only.get(topic as usize)?.as_deref();
        only.filter(|_| self.guest_topics.load(Ordering::Relaxed) == 0)
    }

    /// Tells those who listen to these topics, which are those of the event, what happened at this time.
    /// False: none does.
    #[inline(always)]
    pub fn deliver(&self, at_ns: u64, topics: Topics, event: &Event<'_>) -> bool {
        // Nearly every event has one topic, and few of those who listen want that.
        let mut is_heard = false;
        if !topics.bits().is_power_of_two() {
            self.deliver_to_several(at_ns, topics, event);
            is_heard = true;
        } else if let Some(listeners) = self.of_topic.get(topics.bits().trailing_zeros() as usize) {
            for subscriber in listeners {
                subscriber.hear(at_ns, event);
                is_heard = true;
            }
        }
        if Topics::from_bits_retain(self.guest_topics.load(Ordering::Relaxed)).intersects(topics) {
            self.deliver_to_guests(at_ns, topics, event);
            is_heard = true;
        }
        is_heard
    }

    #[cold]
    #[inline(never)]
    fn deliver_to_several(&self, at_ns: u64, topics: Topics, event: &Event<'_>) {
        for (_, subscriber) in self.list.iter().filter(|(own, _)| own.intersects(topics)) {
            subscriber.hear(at_ns, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_to_guests(&self, at_ns: u64, topics: Topics, event: &Event<'_>) {
        let guests = self.guests.read().unwrap_or_else(PoisonError::into_inner);
        for guest in guests.iter().filter(|guest| guest.topics.intersects(topics)) {
            guest.subscriber.hear(at_ns, event);
        }
    }

    /// Time passes without events.
    pub fn pass_time(&self, at_ns: u64) {
        for (_, subscriber) in &self.list {
            subscriber.pass_time(at_ns);
        }
    }

    /// Waits until what was heard so far has taken effect, or `patience` is over for each.
    pub fn settle(&self, patience: Duration) {
        for (_, subscriber) in &self.list {
            subscriber.settle(patience);
        }
        for guest in self.guests() {
            guest.subscriber.settle(patience);
        }
    }

    /// The device closes.
    pub fn finish(&self) {
        for (_, subscriber) in &self.list {
            subscriber.finish();
        }
        for guest in self.guests() {
            guest.subscriber.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use pumice_transport::types::AsyncEventType;

    use super::*;
    use crate::AsyncElement;

    struct Listener(Topics, Arc<AtomicU32>);

    impl Subscriber for Listener {
        fn topics(&self) -> Topics {
            self.0
        }

        fn hear(&self, _at_ns: u64, event: &Event<'_>) {
            assert!(self.0.intersects(event.topics()));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_subscriber_hears_what_it_listens_to() {
        let heard = Arc::new(AtomicU32::new(0));
        let listener = |topics| -> Box<dyn Subscriber> { Box::new(Listener(topics, Arc::clone(&heard))) };
        let subscribers = Subscribers::new(
            vec![listener(Topics::ASYNC_EVENTS), listener(Topics::POLLS), listener(Topics::all())],
            Clock::monotonic(),
        );
        let (event, element) = (AsyncEventType::PortErr, AsyncElement::Port(1));
        subscribers.emit(&Event::AsyncEventRaised { event, element });
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        assert!(!Subscribers::default().listen(Topics::all()));
    }

    #[test]
    fn a_guest_hears_from_when_it_comes_until_it_leaves() {
        let subscribers = Subscribers::default();
        let (event, element) = (AsyncEventType::PortErr, AsyncElement::Port(1));
        let emit = || subscribers.emit(&Event::AsyncEventRaised { event, element });
        let heard = Arc::new(AtomicU32::new(0));
        let guest = || Arc::new(Listener(Topics::ASYNC_EVENTS, Arc::clone(&heard)));
        emit();
        let number = subscribers.join(guest()).expect("room");
        assert!(subscribers.listen(Topics::ASYNC_EVENTS) && !subscribers.listen(Topics::POLLS));
        emit();
        for _ in 1..MAX_GUESTS {
            assert!(subscribers.join(guest()).is_some_and(|other| other != number));
        }
        assert_eq!(subscribers.join(guest()), None, "no room");
        subscribers.leave(number);
        subscribers.leave(number);
        assert_eq!(Arc::strong_count(&heard), MAX_GUESTS, "the one that left is let go");
        emit();
        assert_eq!(heard.load(Ordering::Relaxed), MAX_GUESTS as u32);
    }

    #[test]
    fn every_topic_is_a_bit_of_its_own() {
        assert_eq!(Topics::all().iter().count() as u32, Topics::all().bits().count_ones());
    }
}
