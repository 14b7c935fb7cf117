"""Programs that pay orders inside durable engines, and are killed between the payment and its record."""
