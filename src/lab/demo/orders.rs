//! The orders of the demo API.

use serde_json::{Value, json};
use std::time::Duration;

/// Ids of all orders.
pub(super) const IDS: [&str; 4] = ["A1001", "A1002", "A1003", "SLOW-1"];

/// An order and its delivery.
pub(super) struct Order {
    id: &'static str,
    item: &'static str,
    status: &'static str,
    place: &'static str,
    days: u32,
}

static ORDERS: [Order; 4] = [
    Order { id: IDS[0], item: "原厂行李架", status: "已发货", place: "上海转运中心", days: 2 },
    Order { id: IDS[1], item: "儿童安全座椅", status: "备货中", place: "苏州仓库", days: 5 },
    Order { id: IDS[2], item: "车载充电线", status: "已签收", place: "收货地址", days: 0 },
    Order { id: IDS[3], item: "冬季轮胎", status: "运输中", place: "武汉分拨中心", days: 3 },
];

/// Finds an order by its id, ignoring case.
pub(super) fn find(order_id: &str) -> Option<&'static Order> {
    ORDERS.iter().find(|order| order.id.eq_ignore_ascii_case(order_id.trim()))
}

impl Order {
    /// Delay of a query. One order is slow, which leaves time to kill a worker during the turn.
    pub(super) fn delay(self: &&'static Self) -> Duration {
        Duration::from_secs(if self.id == "SLOW-1" { 5 } else { 0 })
    }

    /// Status and place.
    pub(super) fn status(&self) -> Value {
        let summary = format!("订单 {}（{}）{}，目前在{}", self.id, self.item, self.status, self.place);
        json!({"order_id": self.id, "item": self.item, "status": self.status, "place": self.place, "summary": summary})
    }

    /// Status, place and remaining days.
    pub(super) fn arrival(&self) -> Value {
        let when = match self.days {
            0 => "已经送达".to_owned(),
            days => format!("预计还有 {days} 天送到"),
        };
        let summary = format!("订单 {}{}，目前在{}，{when}", self.id, self.status, self.place);
        json!({"order_id": self.id, "status": self.status, "place": self.place, "days": self.days, "summary": summary})
    }
}
