//! Pins: the addresses that a room has got for each name. They hold for the life of the room.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use crate::name::DomainName;

/// When a room has more, the oldest are forgotten.
const MAX_PINS: usize = 4096;
/// Names behind one address, for example of a content network.
const MAX_NAMES_OF_ADDRESS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    names: HashMap<IpAddr, Vec<DomainName>>,
    addresses: HashMap<DomainName, Vec<IpAddr>>,
    order: VecDeque<(DomainName, IpAddr)>,
}

impl Pins {
    /// Adds a pin, and returns true if it is new. Forgets the oldest name of an address with
    /// `MAX_NAMES_OF_ADDRESS` names, and the oldest pins beyond `MAX_PINS`.
    pub(crate) fn add(&mut self, name: &DomainName, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let names = self.names.entry(address).or_default();
        if names.contains(name) {
            return false;
        }
        if names.len() >= MAX_NAMES_OF_ADDRESS {
            names.remove(0);
        }
        names.push(name.clone());
        self.addresses.entry(name.clone()).or_default().push(address);
        self.order.push_back((name.clone(), address));
        while self.order.len() > MAX_PINS {
            if let Some((name, address)) = self.order.pop_front() {
                self.forget(&name, address);
            }
        }
        true
    }

    /// Removes one pin from both maps. `order` keeps its entry.
    fn forget(&mut self, name: &DomainName, address: IpAddr) {
        if let Some(names) = self.names.get_mut(&address) {
            names.retain(|known| known != name);
            if names.is_empty() {
                self.names.remove(&address);
            }
        }
        if let Some(addresses) = self.addresses.get_mut(name) {
            addresses.retain(|known| *known != address);
            if addresses.is_empty() {
                self.addresses.remove(name);
            }
        }
    }

    pub(crate) fn names(&self, address: IpAddr) -> &[DomainName] {
        self.names.get(&address.to_canonical()).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn addresses(&self, name: &DomainName) -> &[IpAddr] {
        self.addresses.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pins_are_forgotten() {
        let mut pins = Pins::default();
        let name = DomainName::parse("a.test").unwrap();
        let address = |n: u32| IpAddr::V4((0x0800_0000 + n).into());
        for n in 0..5000 {
            assert!(pins.add(&name, address(n)));
        }
        assert!(!pins.add(&name, address(4999)));
        assert!(pins.names(address(0)).is_empty());
        assert_eq!(pins.names(address(4999)).len(), 1);
        assert_eq!(pins.addresses(&name).len(), MAX_PINS);
        let mapped = "::ffff:8.0.19.135".parse().unwrap();
        assert_eq!(pins.names(mapped), [name]);
    }
}
