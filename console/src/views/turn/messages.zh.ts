import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  title: '轮次 {id}',
  'tab.label': '轮次的各部分',
  'tab.trace': '轨迹',
  'tab.json': 'JSON',
  'fact.time': '耗时',
  'fact.waited': '在通道中等待',
  'fact.tokens': 'Token 数',
  'fact.attempts': '尝试次数',
  'fact.version': '智能体版本',
  'fact.began': '开始',
  'fact.trace': '跟踪 ID',
  'fact.by': '操作人',
  statuses: '状态',
  marks: '显示标记',
  'attempts.help': '本轮启动了多次：某个 worker 停止，或队列、存储不可达。已记录的步骤没有重复执行。',
  running: '本轮尚未提交',
  running_text: '轮次在提交后才能读取。届时此页会自动打开。',
  reason: '原因：{reason}',
} satisfies Translation<typeof en>
