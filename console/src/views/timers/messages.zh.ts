import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  title: '定时器',
  refresh: '重新加载',
  session: '会话',
  'column.due': '剩余',
  'column.name': '定时器',
  'column.session': '会话',
  'column.does': '动作',
  'column.actions': '操作',
  sends: '发送“{text}”',
  calls: '执行 {type} {target}',
  run_waits: '让等待中的运行继续',
  of_engine: '这是引擎自己的定时器。请改为取消运行。',
  cancel: '取消 {name}',
  'cancel.title': '取消 {name}？',
  'cancel.text': '会话 {session} 中这个名称的定时器会被取消。命令经由会话的通道执行。',
  'cancel.submit': '取消定时器',
  'cancel.sent': '命令已进入队列。',
  only_operator: '只有运维可以取消定时器。您的角色是{role}。',
  'empty.title': '没有待触发的定时器',
  'empty.text': '定时器在会话中等待：沉默之后的跟进、人工接管的期限、提醒。每个都在这里倒计时直到触发，重启也不会丢失。',
  'empty.command': 'turnwheel timers list',
  'none.title': '这个会话没有待触发的定时器',
} satisfies Translation<typeof en>
