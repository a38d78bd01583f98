//! The subscribers of events: a list that is made when the device opens and does not change, and guests, who
//! join and leave while the program runs.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pumice_platform::clock::Clock;
use pumice_transport::event::Topic;

use super::{Event, Topics};

/// A subscriber of the events of a device.
pub trait Subscriber: Send + Sync {
    /// Returns the topics that the subscriber subscribes to. It is called once.
    fn topics(&self) -> Topics;

    /// Notifies the subscriber of an event of its topics, with its time on the device's clock. It is called
    /// under the engine's lock, or by a thread that polls: it must not call the device, and must not wait.
    fn on_event(&self, at_ns: u64, event: &Event<'_>);

    /// Notifies the subscriber that time passes without events: called now and then while the device is
    /// driven, if a subscriber subscribes to batches.
    fn pass_time(&self, at_ns: u64) {
        let _ = at_ns;
    }

    /// Waits until the events so far have taken effect, or `patience` is over.
    fn settle(&self, patience: Duration) {
        let _ = patience;
    }

    /// Waits until all events have taken effect, because the device closes.
    fn finish(&self) {}
}

/// Most guests of a device at a time.
pub const MAX_DYNAMIC_SUBSCRIBERS: usize = 8;

/// The subscribers of a device.
pub struct Subscribers {
    /// The topics of the subscribers in the list.
    static_topics: Topics,
    /// The topics of the subscribers in the list and of the guests.
    topics: AtomicU32,
    /// The subscribers of the list, each with its topics.
    list: Vec<(Topics, Arc<dyn Subscriber>)>,
    /// For each topic, by the number of its bit, its subscribers in the order of the list.
    of_topic: [Box<[Arc<dyn Subscriber>]>; u32::BITS as usize],
    /// For each topic its subscriber, if it has only one in the list.
    only: [Option<Arc<dyn Subscriber>>; u32::BITS as usize],
    /// The topics of the guests.
    dynamic_topics: AtomicU32,
    dynamic: RwLock<Vec<DynamicSubscriber>>,
    /// Number of guests so far.
    subscribed_count: AtomicU64,
    clock: Clock,
}

/// A subscriber for a while.
#[derive(Clone)]
struct DynamicSubscriber {
    number: SubscriptionId,
    topics: Topics,
    subscriber: Arc<dyn Subscriber>,
}

/// The number of a guest of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionId(u64);

impl Default for Subscribers {
    /// Returns an instance without subscribers.
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
    /// Returns these subscribers, which are notified with the time of this clock.
    pub fn new(list: Vec<Box<dyn Subscriber>>, clock: Clock) -> Subscribers {
        let list: Vec<_> = list.into_iter().map(|one| (one.topics(), Arc::from(one))).collect();
        let static_topics = list.iter().fold(Topics::empty(), |all, (topics, _)| all | *topics);
        let of_topic: [Box<[_]>; _] = std::array::from_fn(|bit| {
            let topic = Topics::from_bits_retain(1 << bit);
            list.iter()
                .filter(|(static_topics, _)| static_topics.intersects(topic))
                .map(|(_, one)| Arc::clone(one))
                .collect()
        });
        let only = std::array::from_fn(|bit| match of_topic.get(bit).map(|all| &**all) {
            Some([only]) => Some(Arc::clone(only)),
            _ => None,
        });
        Subscribers {
            static_topics,
            topics: AtomicU32::new(static_topics.bits()),
            of_topic,
            only,
            list,
            dynamic_topics: AtomicU32::new(0),
            dynamic: RwLock::default(),
            subscribed_count: AtomicU64::new(0),
            clock,
        }
    }

    /// Returns the topics that have a subscriber.
    #[inline]
    pub fn topics(&self) -> Topics {
        // A change is seen soon enough; the word publishes nothing else.
        Topics::from_bits_retain(self.topics.load(Ordering::Relaxed))
    }

    /// Adds a subscriber until [`Subscribers::leave`]. `None`: there are [`MAX_DYNAMIC_SUBSCRIBERS`] already.
    /// Code that has read the topics once must read them again.
    pub fn join(&self, subscriber: Arc<dyn Subscriber>) -> Option<SubscriptionId> {
        let mut dynamic = self.dynamic.write().unwrap_or_else(PoisonError::into_inner);
        if dynamic.len() >= MAX_DYNAMIC_SUBSCRIBERS {
            return None;
        }
        let number = SubscriptionId(self.subscribed_count.fetch_add(1, Ordering::Relaxed));
        dynamic.push(DynamicSubscriber { number, topics: subscriber.topics(), subscriber });
        self.note_topics(&dynamic);
        Some(number)
    }

    /// Removes a guest, which is not notified any more when this returns.
    pub fn leave(&self, number: SubscriptionId) {
        let mut dynamic = self.dynamic.write().unwrap_or_else(PoisonError::into_inner);
        let removed =
            dynamic.iter().position(|guest| guest.number == number).map(|index| dynamic.remove(index));
        self.note_topics(&dynamic);
        drop(dynamic);
        // The guest's resources are released without the lock.
        drop(removed);
    }

    fn note_topics(&self, dynamic: &[DynamicSubscriber]) {
        let topics = dynamic.iter().fold(Topics::empty(), |all, guest| all | guest.topics);
        self.dynamic_topics.store(topics.bits(), Ordering::Relaxed);
        self.topics.store((self.static_topics | topics).bits(), Ordering::Relaxed);
    }

    /// Returns the present guests.
    fn dynamic(&self) -> Vec<DynamicSubscriber> {
        if self.dynamic_topics.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.dynamic.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports whether any of these topics has a subscriber.
    #[inline]
    pub fn listen(&self, topics: Topics) -> bool {
        self.topics().intersects(topics)
    }

    /// Notifies the subscribers of an event.
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

    /// Returns the present time of the clock with which subscribers are notified.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns the subscriber to this topic, if it is the only one of the list and there are no guests.
    #[inline(always)]
    pub fn single_subscriber(&self, topic: Topic) -> Option<&dyn Subscriber> {
        let only = self.only.get(topic as usize)?.as_deref();
        only.filter(|_| self.dynamic_topics.load(Ordering::Relaxed) == 0)
    }

    /// Notifies the subscribers of these topics, which are those of the event, of an event at this time.
    /// Returns false if there are none.
    #[inline(always)]
    pub fn deliver(&self, at_ns: u64, topics: Topics, event: &Event<'_>) -> bool {
        // Nearly every event has one topic, which few subscribers want.
        let mut is_delivered = false;
        if !topics.bits().is_power_of_two() {
            self.deliver_to_several(at_ns, topics, event);
            is_delivered = true;
        } else if let Some(listeners) = self.of_topic.get(topics.bits().trailing_zeros() as usize) {
            for subscriber in listeners {
                subscriber.on_event(at_ns, event);
                is_delivered = true;
            }
        }
        if Topics::from_bits_retain(self.dynamic_topics.load(Ordering::Relaxed)).intersects(topics) {
            self.deliver_to_dynamic(at_ns, topics, event);
            is_delivered = true;
        }
        is_delivered
    }

    #[cold]
    #[inline(never)]
    fn deliver_to_several(&self, at_ns: u64, topics: Topics, event: &Event<'_>) {
        for (_, subscriber) in self.list.iter().filter(|(static_topics, _)| static_topics.intersects(topics))
        {
            subscriber.on_event(at_ns, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_to_dynamic(&self, at_ns: u64, topics: Topics, event: &Event<'_>) {
        let dynamic = self.dynamic.read().unwrap_or_else(PoisonError::into_inner);
        for guest in dynamic.iter().filter(|guest| guest.topics.intersects(topics)) {
            guest.subscriber.on_event(at_ns, event);
        }
    }

    /// Notifies the subscribers of the list that time passes without events.
    pub fn pass_time(&self, at_ns: u64) {
        for (_, subscriber) in &self.list {
            subscriber.pass_time(at_ns);
        }
    }

    /// Waits until the events so far have taken effect, or `patience` is over for each subscriber.
    pub fn settle(&self, patience: Duration) {
        for (_, subscriber) in &self.list {
            subscriber.settle(patience);
        }
        for guest in self.dynamic() {
            guest.subscriber.settle(patience);
        }
    }

    /// Notifies the subscribers that the device closes.
    pub fn finish(&self) {
        for (_, subscriber) in &self.list {
            subscriber.finish();
        }
        for guest in self.dynamic() {
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
    use crate::event::AsyncElement;

    struct Listener(Topics, Arc<AtomicU32>);

    impl Subscriber for Listener {
        fn topics(&self) -> Topics {
            self.0
        }

        fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
            assert!(self.0.intersects(event.topics()));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_subscriber_hears_what_it_listens_to() {
        let event_count = Arc::new(AtomicU32::new(0));
        let listener =
            |topics| -> Box<dyn Subscriber> { Box::new(Listener(topics, Arc::clone(&event_count))) };
        let subscribers = Subscribers::new(
            vec![listener(Topics::ASYNC_EVENTS), listener(Topics::POLLS), listener(Topics::all())],
            Clock::monotonic(),
        );
        let (event, element) = (AsyncEventType::PortErr, AsyncElement::Port(1));
        subscribers.emit(&Event::AsyncEventRaised { event, element });
        assert_eq!(event_count.load(Ordering::Relaxed), 2);
        assert!(!Subscribers::default().listen(Topics::all()));
    }

    #[test]
    fn a_guest_hears_from_when_it_comes_until_it_leaves() {
        let subscribers = Subscribers::default();
        let (event, element) = (AsyncEventType::PortErr, AsyncElement::Port(1));
        let emit = || subscribers.emit(&Event::AsyncEventRaised { event, element });
        let event_count = Arc::new(AtomicU32::new(0));
        let guest = || Arc::new(Listener(Topics::ASYNC_EVENTS, Arc::clone(&event_count)));
        emit();
        let number = subscribers.join(guest()).expect("room");
        assert!(subscribers.listen(Topics::ASYNC_EVENTS) && !subscribers.listen(Topics::POLLS));
        emit();
        for _ in 1..MAX_DYNAMIC_SUBSCRIBERS {
            assert!(subscribers.join(guest()).is_some_and(|other| other != number));
        }
        assert_eq!(subscribers.join(guest()), None, "no room");
        subscribers.leave(number);
        subscribers.leave(number);
        assert_eq!(Arc::strong_count(&event_count), MAX_DYNAMIC_SUBSCRIBERS, "the one that left is let go");
        emit();
        assert_eq!(event_count.load(Ordering::Relaxed), MAX_DYNAMIC_SUBSCRIBERS as u32);
    }

    #[test]
    fn every_topic_is_a_bit_of_its_own() {
        assert_eq!(Topics::all().iter().count() as u32, Topics::all().bits().count_ones());
    }
}
