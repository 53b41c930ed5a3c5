//! A map that lets go of its oldest entry past its bound.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    max: usize,
    map: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, map: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.map.get(key)
    }

    /// Whether the key is new. A key that is known keeps its age.
    pub(crate) fn put(&mut self, key: K, value: V) -> bool {
        let new = self.map.insert(key.clone(), value).is_none();
        if new {
            self.order.push_back(key);
            if self.order.len() > self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.map.remove(&oldest);
            }
        }
        new
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order.iter().filter_map(|key| self.map.get_key_value(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut map = Bounded::new(2);
        assert!(map.put(1, 'a') && map.put(2, 'b'));
        assert!(!map.put(1, 'c'));
        map.put(3, 'd');
        assert_eq!(map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>(), [(2, 'b'), (3, 'd')]);
        assert_eq!((map.get(&1), map.len()), (None, 2));
    }
}
