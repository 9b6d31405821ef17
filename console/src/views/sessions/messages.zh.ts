import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  title: '会话',
  'filter.label': '筛选',
  'filter.status': '状态',
  'filter.agent': '智能体',
  'column.select': '选择',
  'column.session': '会话',
  'column.status': '状态',
  'column.agent': '智能体',
  'column.user': '用户',
  'column.channel': '渠道',
  'column.timers': '定时器',
  'column.changed': '最近变化',
  'select.one': '选择 {name}',
  new: '新对话',
  refresh: '重新加载',
  waits: '在 {flow} 中等待回答',
  closed: '已关闭',
  timers: '{count} 个待触发定时器',
  'empty.title': '还没有对话',
  'empty.text': '用户与智能体的每次对话是一个会话。它从第一条消息开始：来自渠道、试用场或终端。',
  'empty.command': 'turnwheel chat --agent sales',
  'empty.playground': '打开试用场',
  'none.title': '没有符合条件的会话',
  'none.text': '目前没有会话符合所选的状态和智能体。会话变化后会出现在这里。',
} satisfies Translation<typeof en>
