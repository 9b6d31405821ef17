import './styles/tokens.css'
import './styles/base.css'
import { mount } from 'svelte'
import { account } from './api/account.svelte'
import App from './app/App.svelte'
import { routes } from './app/routes'
import { theme } from './app/theme.svelte'
import { locale } from './i18n'
import { live } from './live'
import { match, router } from './router'

theme.start()
locale.apply()
router.start()
live.start()
void account.load()
// The view is loaded while the account is asked for.
void routes.find(({ pattern }) => match(pattern, router.path))?.load().catch(() => undefined)
mount(App, { target: document.getElementById('app')! })
