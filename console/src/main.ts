import './styles/tokens.css'
import './styles/base.css'
import { mount } from 'svelte'
import { account } from './api/account.svelte'
import App from './app/App.svelte'
import { theme } from './app/theme.svelte'
import { locale } from './i18n'
import { live } from './live'
import { router } from './router'

theme.start()
locale.apply()
router.start()
live.start()
void account.load()
mount(App, { target: document.getElementById('app')! })
