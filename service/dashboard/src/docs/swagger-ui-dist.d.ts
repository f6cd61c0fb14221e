declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  import type { SwaggerRequest } from "./requests";

  interface Options {
    url: string;
    dom_id: `#${string}`;
    deepLinking?: boolean;
    docExpansion?: "list" | "full" | "none";
    filter?: boolean;
    defaultModelsExpandDepth?: number;
    displayRequestDuration?: boolean;
    validatorUrl?: string | null;
    requestInterceptor?: (request: SwaggerRequest) => SwaggerRequest;
  }

  /** Renders the document at `url` into an element. */
  export default function SwaggerUI(options: Options): unknown;
}
