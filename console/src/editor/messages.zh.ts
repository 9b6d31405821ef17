import type { Translation } from '$/i18n'
import type en from './messages.en'

export default {
  find: '查找',
  replace: '替换',
  next: '下一个',
  previous: '上一个',
  all: '全部',
  case: '区分大小写',
  regexp: '正则表达式',
  word: '全字匹配',
  replace_one: '替换',
  replace_all: '全部替换',
  close: '关闭',
  fold: '折叠此行',
  unfold: '展开此行',
  folded: '已折叠的行',
  unfold_code: '展开',
  go_to_line: '转到行',
  go: '转到',
} satisfies Translation<typeof en>
