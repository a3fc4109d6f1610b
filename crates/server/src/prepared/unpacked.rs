//! An answer in memory: always compressed, and uncompressed while machines ask for it.
//!
//! Ignition does not accept gzip, so nearly all answers are sent uncompressed, at ten times the size. With many pools, of
//! which few boot machines at a time, the uncompressed bodies would take most of the memory.
//!
//! Guarantees: the uncompressed bodies of recent answers are kept, so a request for one is a look-up. All kept bodies
//! together are at most [`LIMIT`] bytes (or one body, if it is larger), however many pools and versions there are. An
//! answer that is being sent keeps its body until it is sent. All requests for the same answer share one body.
//!
//! What it is not: how an answer is made (see `prepare`), and which answers there are (see `cache`).

use crate::prepared::prepare::{Prepared, unpack};
use http::HeaderValue;
use hyper::body::Bytes;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The uncompressed bodies that are kept, in bytes: about five pools of usual size, more than usually boot machines at the
/// same time. The latest one is always kept.
const LIMIT: usize = 2 << 20;

/// A prepared answer with its header values made.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The entity tag of the uncompressed body.
    pub(crate) etag: HeaderValue,
    /// The compressed body, if compression saves anything.
    pub(crate) gzip: Option<CompressedBody>,
    /// The length of the uncompressed body.
    length: usize,
    plain: Mutex<Plain>,
    /// When it was last asked for, counted in requests.
    used: AtomicU64,
}

/// The uncompressed body.
#[derive(Debug, Default)]
struct Plain {
    /// Present while the cache keeps it.
    kept: Option<Arc<Vec<u8>>>,
    /// Present while somebody uses it: slow machines take minutes.
    shared: Weak<Vec<u8>>,
}

impl Plain {
    fn store(&mut self, body: Vec<u8>) -> Arc<Vec<u8>> {
        let body = Arc::new(body);
        self.shared = Arc::downgrade(&body);
        self.kept = Some(Arc::clone(&body));
        body
    }
}

/// An uncompressed body that is being sent.
struct Sent(Arc<Vec<u8>>);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The compressed body.
#[derive(Debug)]
pub(crate) struct CompressedBody {
    pub(crate) body: Bytes,
    pub(crate) etag: HeaderValue,
}

impl Reply {
    /// Keeps a prepared answer, compressed if possible.
    pub(crate) fn new(prepared: Prepared) -> Self {
        let Prepared { version: _, body, gzip, etag, gzip_etag, dropped: _ } = prepared;
        // Hex digits and quotes are always a valid header value.
        let tag = |etag: &str| HeaderValue::from_str(etag).unwrap_or(HeaderValue::from_static("\"0\""));
        let gzip = gzip.map(|g| CompressedBody { body: Bytes::from(g), etag: tag(&gzip_etag) });
        let length = body.len();
        let mut plain = Plain::default();
        if gzip.is_none() {
            plain.store(body);
        }
        Self { etag: tag(&etag), gzip, length, plain: Mutex::new(plain), used: AtomicU64::new(0) }
    }
}

/// The answers whose uncompressed bodies are kept.
#[derive(Debug)]
pub(crate) struct UnpackedCache {
    limit: usize,
    /// Counts requests.
    clock: AtomicU64,
    at_hand: Mutex<Vec<Weak<Reply>>>,
}

impl Default for UnpackedCache {
    fn default() -> Self {
        Self { limit: LIMIT, clock: AtomicU64::default(), at_hand: Mutex::default() }
    }
}

impl UnpackedCache {
    /// The uncompressed body. If it is not kept, the first request unpacks it, and others wait for that.
    ///
    /// # Errors
    /// A compressed body that is broken, which cannot happen: we made it.
    pub(crate) fn plain(&self, reply: &Arc<Reply>) -> io::Result<Bytes> {
        reply.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut plain = reply.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = &plain.kept {
            return Ok(Bytes::from_owner(Sent(Arc::clone(body))));
        }
        let body = if let Some(body) = plain.shared.upgrade() {
            plain.kept = Some(Arc::clone(&body));
            body
        } else {
            let packed = reply.gzip.as_ref().map(|g| g.body.as_ref()).unwrap_or_default();
            plain.store(unpack(packed, reply.length)?)
        };
        // Lock order: the list before a body. So the body's lock is released here.
        drop(plain);
        self.cache(reply);
        Ok(Bytes::from_owner(Sent(body)))
    }

    /// Adds an answer, and drops the bodies of the least recently used ones above the limit.
    fn cache(&self, new: &Arc<Reply>) {
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others: Vec<Arc<Reply>> = at_hand.iter().filter_map(Weak::upgrade).collect();
        others.retain(|other| !Arc::ptr_eq(other, new));
        others.sort_by_key(|other| std::cmp::Reverse(other.used.load(Ordering::Relaxed)));
        let mut sum = new.length;
        at_hand.clear();
        at_hand.push(Arc::downgrade(new));
        for other in others {
            sum = sum.saturating_add(other.length);
            if sum <= self.limit {
                at_hand.push(Arc::downgrade(&other));
            } else {
                other.plain.lock().unwrap_or_else(PoisonError::into_inner).kept = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::prepare::finish;
    use ignition::Version;
    use serde_json::json;

    fn mk_reply(letter: &str, size: usize) -> Arc<Reply> {
        let config = json!({ "text": letter.repeat(size) });
        Arc::new(Reply::new(finish(config, Version::V3_5, Vec::new()).unwrap()))
    }

    fn at_hand(reply: &Reply) -> bool {
        reply.plain.lock().unwrap().kept.is_some()
    }

    #[test]
    fn what_was_asked_for_lately_is_at_hand_and_the_rest_is_packed() {
        let cache = UnpackedCache { limit: 10_100, ..UnpackedCache::default() };
        let [a, b, c] = ["a", "b", "c"].map(|letter| mk_reply(letter, 5000));
        assert!(!at_hand(&a), "packed until somebody asks");
        for reply in [&a, &b, &a, &c] {
            let body = cache.plain(reply).unwrap();
            assert_eq!(body.len(), reply.length);
        }
        assert_eq!([&a, &b, &c].map(|r| at_hand(r)), [true, false, true], "b was not asked for the longest");
        assert_eq!(cache.plain(&b).unwrap()[..12], *b"{\"text\":\"bbb");
        assert_eq!([&a, &b, &c].map(|r| at_hand(r)), [false, true, true]);
        assert_eq!(cache.at_hand.lock().unwrap().len(), 2);
    }

    #[test]
    fn one_that_is_too_large_stands_alone_and_a_small_one_is_never_packed() {
        let cache = UnpackedCache { limit: 100, ..UnpackedCache::default() };
        let (large, small) = (mk_reply("a", 5000), mk_reply("b", 10));
        cache.plain(&large).unwrap();
        cache.plain(&small).unwrap();
        assert!(at_hand(&large) && at_hand(&small) && small.gzip.is_none());
        drop(large);
        cache.plain(&mk_reply("c", 5000)).unwrap();
        assert_eq!(cache.at_hand.lock().unwrap().len(), 1, "what is not served any more is forgotten");
    }

    #[test]
    fn machines_that_are_slow_share_one_form_with_those_that_come_later() {
        let cache = UnpackedCache { limit: 100, ..UnpackedCache::default() };
        let (a, b) = (mk_reply("a", 5000), mk_reply("b", 5000));
        let under_way = cache.plain(&a).unwrap();
        for _ in 0..3 {
            cache.plain(&b).unwrap();
            assert!(!at_hand(&a));
            assert_eq!(cache.plain(&a).unwrap().as_ptr(), under_way.as_ptr());
        }
        drop(under_way);
        cache.plain(&b).unwrap();
        assert!(a.plain.lock().unwrap().shared.upgrade().is_none(), "nobody has it any more");
    }

    #[test]
    fn many_that_ask_at_once_all_get_it() {
        let cache = UnpackedCache { limit: 6000, ..UnpackedCache::default() };
        let replies = ["a", "b", "c"].map(|letter| mk_reply(letter, 5000));
        std::thread::scope(|scope| {
            for turn in 0..4 {
                let (cache, replies) = (&cache, &replies);
                scope.spawn(move || {
                    for i in 0..300 {
                        let reply = &replies[(turn + i) % 3];
                        assert_eq!(cache.plain(reply).unwrap().len(), reply.length);
                    }
                });
            }
        });
        assert!(replies.iter().filter(|r| at_hand(r)).count() <= 3);
    }
}
