//! The open connections of each client address, so that no machine takes all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts open connections by address. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One open connection of an address, until it is dropped.
#[derive(Debug)]
pub(super) struct AddressSlot {
    addresses: Addresses,
    address: IpAddr,
}

impl Addresses {
    /// Counts a connection; `None` if the address has `limit` open ones. 0 is no limit.
    pub(super) fn take(&self, address: IpAddr, limit: usize) -> Option<AddressSlot> {
        let address = address.to_canonical();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_insert(0);
        if limit > 0 && *count >= limit {
            return None;
        }
        *count += 1;
        Some(AddressSlot { addresses: self.clone(), address })
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut open = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn an_address_has_so_many_connections_and_another_has_its_own() {
        let addresses = Addresses::default();
        let (one, other) = (IpAddr::from(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::from(Ipv4Addr::new(10, 0, 0, 2)));
        let first = addresses.take(one, 2).unwrap();
        let _second = addresses.take(one, 2).unwrap();
        let mapped = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        assert!(addresses.take(mapped, 2).is_none());
        let _of_other = addresses.take(other, 2).unwrap();
        drop(first);
        assert!(addresses.take(one, 2).is_some());
        assert_eq!(addresses.0.lock().unwrap().len(), 2, "closed connections are forgotten");
        assert!(addresses.take(one, 0).is_some());
    }
}
