import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  label: '对话',
  'role.user': '用户',
  'role.assistant': '智能体',
  'role.human': '人工',
  'kind.greeting': '问候',
  'kind.interim': '过程说明',
  'kind.handoff': '转人工',
  'kind.timer': '定时器',
  'kind.note': '给智能体的说明，未发给用户',
  'kind.apology': '致歉',
  'kind.final': '完整回复',
  'kind.response': '回复',
  pending: '在队列中',
  growing: '正在书写',
  sources: '来源',
  choices: '建议的回答',
  turn: '轮次 {id}',
  working: '智能体正在工作',
  truncated: '已截断：全文共 {size}。',
  latest: '最新消息',
} satisfies Translation<typeof en>
