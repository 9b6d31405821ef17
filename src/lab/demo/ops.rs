//! Operations data of a small company: incidents, health and logs of a few services, relative to the current time.

use base::clock;
use serde_json::{Value, json};
use std::time::Duration;

/// A service and its health.
struct Service {
    name: &'static str,
    title: &'static str,
    status: &'static str,
    note: &'static str,
    p95_ms: u32,
    /// Whether its logs are collected.
    logs: bool,
}

static SERVICES: [Service; 5] = [
    Service {
        name: "payment",
        title: "支付",
        status: "degraded",
        note: "三小时前开始变慢，监控看不出原因",
        p95_ms: 2_300,
        logs: true,
    },
    Service { name: "checkout", title: "下单", status: "healthy", note: "正常", p95_ms: 180, logs: true },
    Service { name: "inventory", title: "库存", status: "healthy", note: "正常", p95_ms: 95, logs: true },
    Service { name: "search", title: "搜索", status: "healthy", note: "正常", p95_ms: 60, logs: true },
    Service {
        name: "legacy-billing",
        title: "老计费系统",
        status: "degraded",
        note: "任务积压 1200 个；日志没有接入平台",
        p95_ms: 9_800,
        logs: false,
    },
];

/// Number, priority, service, title, age in hours, state.
static INCIDENTS: [(&str, &str, &str, &str, u64, &str); 5] = [
    ("INC0101", "P1", "payment", "支付超时，用户无法付款", 3, "处理中"),
    ("INC0102", "P1", "checkout", "下单失败率升高", 9, "已解决"),
    ("INC0103", "P2", "legacy-billing", "对账任务积压", 20, "处理中"),
    ("INC0104", "P3", "search", "个别结果没有图片", 30, "待处理"),
    ("INC0105", "P1", "inventory", "库存数不一致", 60, "已解决"),
];

/// Service, age in minutes, level, message.
static LOGS: [(&str, u64, &str, &str); 6] = [
    ("payment", 12, "ERROR", "数据库连接池耗尽（connection pool exhausted）：50/50 在用，等待超过 2000 ms"),
    ("payment", 95, "ERROR", "POST /pay 超时（timeout）：等待数据库连接"),
    ("payment", 185, "WARN", "部署 v2.14 后连接池上限由 200 变为 50"),
    ("checkout", 540, "ERROR", "调用 payment 超时（timeout），已重试 3 次"),
    ("inventory", 3_600, "WARN", "两个仓库的库存数不一致，已自动校正"),
    ("search", 30, "INFO", "索引重建完成"),
];

/// Names of all services, separated by commas.
pub(super) fn services() -> String {
    SERVICES.iter().map(|service| service.name).collect::<Vec<_>>().join(", ")
}

/// Incidents of the last `hours` hours with this priority; of any priority if it is empty.
pub(super) fn incidents(priority: &str, hours: u64) -> Value {
    let wanted = |of: &&(&str, &str, &str, &str, u64, &str)| {
        of.4 <= hours && (priority.is_empty() || of.1.eq_ignore_ascii_case(priority))
    };
    let found: Vec<_> = INCIDENTS.iter().filter(wanted).collect();
    let line = |of: &&(&str, &str, &str, &str, u64, &str)| {
        let (number, _, service, title, ago, state) = of;
        format!("{number} {service} {title}（{ago} 小时前，{state}）")
    };
    let lines: Vec<_> = found.iter().map(line).collect();
    let kind = if priority.is_empty() { String::new() } else { format!(" {}", priority.to_uppercase()) };
    let summary = match lines.is_empty() {
        true => format!("过去 {hours} 小时没有{kind} 工单"),
        false => format!("过去 {hours} 小时有 {} 个{kind} 工单：{}", lines.len(), lines.join("；")),
    };
    let entry = |of: &&(&str, &str, &str, &str, u64, &str)| {
        let (number, priority, service, title, ago, state) = of;
        let opened_at = clock::now().minus(Duration::from_secs(ago * 3_600));
        json!({"number": number, "priority": priority, "service": service, "title": title, "state": state, "opened_at": opened_at})
    };
    let entries: Vec<Value> = found.iter().map(entry).collect();
    json!({"count": entries.len(), "incidents": entries, "summary": summary})
}

/// Health of a service, or of all services if `name` is empty. `None` if the service is unknown.
pub(super) fn health(name: &str) -> Option<Value> {
    let wanted = |of: &&Service| name.is_empty() || of.name.eq_ignore_ascii_case(name.trim());
    let found: Vec<_> = SERVICES.iter().filter(wanted).collect();
    if found.is_empty() {
        return None;
    }
    let line = |of: &&Service| {
        let Service { name, title, status, note, p95_ms, .. } = of;
        format!("{name}（{title}）{status}，p95 {p95_ms} ms，{note}")
    };
    let summary = found.iter().map(line).collect::<Vec<_>>().join("；");
    let entry = |of: &&Service| json!({"name": of.name, "status": of.status, "p95_ms": of.p95_ms, "note": of.note});
    let entries: Vec<Value> = found.iter().map(entry).collect();
    Some(json!({"services": entries, "summary": summary}))
}

/// The reason why a service has no logs.
pub(super) enum NoLogs {
    /// The service is unknown.
    Unknown,
    /// The logs of the service are not collected.
    NotCollected,
}

/// Log entries of a service that contain `query`, ignoring case.
pub(super) fn logs(service: &str, query: &str) -> Result<Value, NoLogs> {
    let known = SERVICES.iter().find(|of| of.name.eq_ignore_ascii_case(service.trim())).ok_or(NoLogs::Unknown)?;
    if !known.logs {
        return Err(NoLogs::NotCollected);
    }
    let query = query.trim().to_lowercase();
    let wanted = |of: &&(&str, u64, &str, &str)| {
        of.0 == known.name && format!("{} {}", of.2, of.3).to_lowercase().contains(&query)
    };
    let found: Vec<_> = LOGS.iter().filter(wanted).collect();
    let line = |of: &&(&str, u64, &str, &str)| format!("{} 分钟前 {} {}", of.1, of.2, of.3);
    let summary = match found.is_empty() {
        true => format!("{} 没有符合的日志", known.name),
        false => format!("{}：{}", known.name, found.iter().map(line).collect::<Vec<_>>().join("；")),
    };
    let entry = |of: &&(&str, u64, &str, &str)| {
        let at = clock::now().minus(Duration::from_secs(of.1 * 60));
        json!({"at": at, "level": of.2, "message": of.3})
    };
    let entries: Vec<Value> = found.iter().map(entry).collect();
    Ok(json!({"service": known.name, "count": entries.len(), "entries": entries, "summary": summary}))
}
