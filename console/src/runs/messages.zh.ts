import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  pending: '排队中',
  running: '运行中',
  waiting: '等待中',
  completed: '已完成',
  failed: '失败',
  cancelled: '已取消',
  skipped: '已跳过',
  stopped: '未完成',
  not_reached: '未到达',
  not_taken: '未选中',
  'start.title': '启动运行',
  'start.workflow': '工作流',
  'start.query': '输入',
  'start.query_help': '第一批阶段以 {query} 得到这段文字。',
  'start.optional': '{name}（可选）',
  'start.submit': '启动',
  'start.no_inputs': '这个工作流不需要输入。',
  'start.empty': '请输入内容。',
  'start.json': '{name} 不是有效的 JSON。',
  'start.json_help': '{type} 类型，以 JSON 填写。',
} satisfies Translation<typeof en>
