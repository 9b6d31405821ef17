import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  title: '工作流运行',
  'filter.label': '筛选',
  'filter.status': '状态',
  'filter.workflow': '工作流',
  'filter.session': '会话',
  'column.run': '运行',
  'column.status': '状态',
  'column.workflow': '工作流',
  'column.stages': '阶段数',
  'column.tokens': 'Token 数',
  'column.time': '耗时',
  'column.began': '请求时间',
  start: '启动运行',
  refresh: '重新加载',
  no_start: '只有运维可以启动运行。您的角色是{role}。',
  'empty.title': '还没有运行',
  'empty.text': '一次运行是工作流的一次执行：在对话中、从这里或从终端启动。每个阶段都有记录，因此失败的运行可以从中断处继续。',
  'empty.command': 'turnwheel workflows run smart_router "你好"',
  'none.title': '没有符合条件的运行',
  'none.text': '已存储的运行都不符合所选条件。运行的保存时间与其步骤相同。',
} satisfies Translation<typeof en>
