import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  cancel: '取消本轮',
  release: '释放',
  close: '关闭',
  timers: '取消定时器',
  'cancel.title': { one: '取消此会话正在进行的轮次？', other: '取消 {count} 个会话正在进行的轮次？' },
  'cancel.text': '正在进行的轮次，以及在此命令之前等待的消息，都会以“已取消”结束。已执行的动作不会撤销。若本轮尚未回答，用户会收到致歉。',
  'release.title': { one: '释放此会话？', other: '释放 {count} 个会话？' },
  'release.text': '人工接管结束，智能体将回答下一条消息。正在等待回答的流程会被放弃。',
  'close.title': { one: '关闭此会话？', other: '关闭 {count} 个会话？' },
  'close.text': '对话结束，其定时器被取消。用户再次发消息时会重新打开。',
  'timers.title': { one: '取消此会话的待触发定时器？', other: '取消 {count} 个会话的待触发定时器？' },
  'timers.text': '等待中的跟进消息和动作不会再发送。引擎自己的定时器（例如人工接管的期限）保留。',
  reason: '原因（可选）',
  reason_help: '会记入会话状态和审计记录。',
  sent: { one: '命令已进入队列。', other: '{count} 条命令已进入队列。' },
  failed: { one: '{count} 个会话拒绝了命令：', other: '{count} 个会话拒绝了命令：' },
} satisfies Translation<typeof en>
